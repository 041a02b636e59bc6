/* mqttload - the load generator of scripts/bench: one file, one thread, epoll, MQTT 3.1.1 and 5.0.
 *
 *   cc -O2 -Wall -o mqttload mqttload.c        (Linux only: epoll and /proc)
 *
 * Every payload carries (run id, publisher id, sequence, send time), so the report has
 * delivery rate, latency, lost, duplicate and out-of-order counts, plus the broker's own
 * CPU / RSS / written bytes read from /proc (--broker-pid, whole process tree).
 * JSON on stdout, one object.  See usage() for flags.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
#define MAXOPT 16
#define HDR 28                      /* magic4 run4 pub4 seq8 ts8 */
#define MAGIC 0x4d4c4f44u

/* ------------------------------------------------------------------ options */
static struct { struct sockaddr_in a; } hosts[16]; static int nhosts;
static const char *o_host = "127.0.0.1"; static int o_port = 1883;
static int o_ver = 5, P = 1, S = 1, o_qos = 1, o_subqos = -1, o_size = 256, o_window = 100, G = 0, o_keys = 0;
static int o_idle = 0, o_idlesub = 0, o_recvmax = 0, o_clean = 1, o_keepalive = 0, o_appack = 0, o_ackqos = 0, o_nackpct = 0;
static u64 o_count = 100000; static double o_dur = 0, o_rate = 0, o_draintmo = 10, o_settle = 1, o_hold = 3;
static long o_expiry = -1, o_lag = 0; static int o_backlog = 0, o_presub = 1, o_reconnect = 0, o_resub = 0, o_retain = 0, o_verbose = 0;
static int o_noshare_warn = 0, o_connconc = 200, o_puback_wait = 1, o_drainonly = 0, o_nodelay = 1, o_expire_msg = 0, o_keepsess = 0;
static const char *o_topic = "bench/%d", *o_user, *o_pass, *o_prefix, *o_acktopic; static u32 o_run;
static const char *filters[MAXOPT]; static int nfilters;
static struct { const char *k, *v; } pubprops[MAXOPT], subprops[MAXOPT], ackprops[MAXOPT]; static int npp, nsp, nap;
static int bpids[64], nbp;
static const char *o_label = "", *o_gate; static int o_batchus = 0, o_cleaning = 0;

/* ------------------------------------------------------------------ utils */
static u64 now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (u64)t.tv_sec * 1000000000ull + t.tv_nsec; }
static int json_open;
static void die(const char *f, ...) { va_list a; va_start(a, f); fprintf(stderr, "mqttload: "); vfprintf(stderr, f, a); fputc('\n', stderr); va_end(a);
  if (json_open) printf(",\"error\":\""); else printf("{\"label\":\"%s\",\"error\":\"", o_label); va_start(a, f); vprintf(f, a); va_end(a); printf("\"}\n"); exit(2); }
static void *xrealloc(void *p, size_t n) { p = realloc(p, n); if (!p) { fprintf(stderr, "oom\n"); exit(3); } return p; }

typedef struct { u8 *p; size_t cap, a, b; } Buf;
static u8 *buf_room(Buf *o, size_t n) {
  if (o->a == o->b) o->a = o->b = 0;
  if (o->b + n > o->cap) {
    if (o->a) { memmove(o->p, o->p + o->a, o->b - o->a); o->b -= o->a; o->a = 0; }
    if (o->b + n > o->cap) { size_t c = o->cap ? o->cap : 512; while (c < o->b + n) c *= 2; o->p = xrealloc(o->p, c); o->cap = c; }
  }
  return o->p + o->b;
}
static void put(Buf *o, const void *d, size_t n) { memcpy(buf_room(o, n), d, n); o->b += n; }
static void put8(Buf *o, int v) { u8 x = v; put(o, &x, 1); }
static void put16(Buf *o, int v) { u8 x[2] = { v >> 8, v }; put(o, x, 2); }
static void put32(Buf *o, u32 v) { u8 x[4] = { v >> 24, v >> 16, v >> 8, v }; put(o, x, 4); }
static void putstr(Buf *o, const char *s, size_t n) { put16(o, n); put(o, s, n); }
static void putvar(Buf *o, u32 v) { do { u8 x = v & 127; v >>= 7; if (v) x |= 128; put8(o, x); } while (v); }
static int rdvar(const u8 *p, size_t n, u32 *v) { u32 r = 0; for (int i = 0; i < 4; i++) { if ((size_t)i >= n) return 0; r |= (u32)(p[i] & 127) << (7 * i); if (!(p[i] & 128)) { *v = r; return i + 1; } } return -1; }
static inline u16 rd16(const u8 *p) { return p[0] << 8 | p[1]; }

/* %d index  %n sequence  %k seq%keys  %x the same, every publisher beginning elsewhere  %l seq/keys  %g group  %r run id (hex)  %% percent */
static int has_seq(const char *t) { for (; *t; t++) if (*t == '%' && strchr("nkxl", t[1]) && t[1]) return 1; return 0; }
static size_t expand(char *o, size_t cap, const char *t, int d, u64 n, int g) {
  size_t l = 0; for (; *t && l + 24 < cap; t++) {
    if (*t != '%') { o[l++] = *t; continue; }
    t++; switch (*t) {
      case 'd': l += sprintf(o + l, "%d", d); break;
      case 'n': l += sprintf(o + l, "%llu", (unsigned long long)n); break;
      case 'k': l += sprintf(o + l, "%llu", (unsigned long long)(o_keys ? n % o_keys : n)); break;
      case 'x': l += sprintf(o + l, "%llu", (unsigned long long)(o_keys ? (n + (u64)d * o_keys / (P ? P : 1)) % o_keys : n)); break;
      case 'l': l += sprintf(o + l, "%llu", (unsigned long long)(o_keys ? n / o_keys : 0)); break;
      case 'g': l += sprintf(o + l, "%d", g); break;
      case 'r': l += sprintf(o + l, "%08x", o_run); break;
      case 0: t--; break; default: o[l++] = *t; } }
  o[l] = 0; return l;
}

/* histogram of microseconds, 128 sub-buckets per power of two */
#define HN (256 + 40 * 128)
typedef struct { u64 c[HN], n, max; double sum; } Hist;
static void hadd(Hist *h, u64 us) { int i; if (us < 256) i = us; else { int e = 63 - __builtin_clzll(us) - 7; if (e > 39) e = 39; i = 256 + (e - 1) * 128 + (int)((us >> e) & 127); } h->c[i]++; h->n++; h->sum += us; if (us > h->max) h->max = us; }
static double hq(Hist *h, double q) { if (!h->n) return 0; u64 k = (u64)(q * (h->n - 1)) + 1, s = 0; for (int i = 0; i < HN; i++) { s += h->c[i]; if (s >= k) { double v; if (i < 256) v = i; else { int e = (i - 256) / 128 + 1, m = (i - 256) % 128 + 128; v = ((double)m + 0.5) * (double)(1ull << e); } return v > h->max ? h->max : v; } } return h->max; }

typedef struct { u64 *w; u64 n; } Bits;
static int bset(Bits *b, u64 i) { u64 k = i >> 6; if (k >= b->n) { u64 m = b->n ? b->n * 2 : 64; while (m <= k) m *= 2; b->w = xrealloc(b->w, m * 8); memset(b->w + b->n, 0, (m - b->n) * 8); b->n = m; } u64 m = 1ull << (i & 63); int old = !!(b->w[k] & m); b->w[k] |= m; return old; }
static int bget(Bits *b, u64 i) { u64 k = i >> 6; return k < b->n && (b->w[k] >> (i & 63) & 1); }

/* ------------------------------------------------------------------ /proc */
typedef struct { double cpu_u, cpu_s; long rss_kb, hwm_kb; double wbytes; int nproc; } Proc;
static void proc_one(int pid, Proc *r) {
  char f[64], b[4096]; FILE *h; snprintf(f, 64, "/proc/%d/stat", pid);
  if (!(h = fopen(f, "r"))) return; size_t n = fread(b, 1, 4095, h); fclose(h); b[n] = 0; char *p = strrchr(b, ')'); if (!p) return;
  unsigned long ut, st; if (sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ut, &st) == 2) { double t = sysconf(_SC_CLK_TCK); r->cpu_u += ut / t; r->cpu_s += st / t; r->nproc++; }
  snprintf(f, 64, "/proc/%d/status", pid); if ((h = fopen(f, "r"))) { long v; while (fgets(b, 4096, h)) { if (sscanf(b, "VmRSS: %ld", &v) == 1) r->rss_kb += v; if (sscanf(b, "VmHWM: %ld", &v) == 1) r->hwm_kb += v; } fclose(h); }
  snprintf(f, 64, "/proc/%d/io", pid); if ((h = fopen(f, "r"))) { long long v; while (fgets(b, 4096, h)) if (sscanf(b, "write_bytes: %lld", &v) == 1) r->wbytes += v; fclose(h); }
}
static Proc proc_sample(void) {
  Proc r; memset(&r, 0, sizeof r); if (!nbp) return r;
  static int pid[65536], pp[65536]; int n = 0, in[4096], ni = 0; DIR *d = opendir("/proc"); struct dirent *e;
  while ((e = readdir(d)) && n < 65536) if (isdigit(e->d_name[0])) { char f[64], b[1024]; snprintf(f, 64, "/proc/%.20s/stat", e->d_name); FILE *h = fopen(f, "r"); if (!h) continue; size_t k = fread(b, 1, 1023, h); fclose(h); b[k] = 0; char *p = strrchr(b, ')'); int q; if (p && sscanf(p + 2, "%*c %d", &q) == 1) { pid[n] = atoi(e->d_name); pp[n++] = q; } }
  closedir(d);
  for (int i = 0; i < nbp; i++) in[ni++] = bpids[i];
  for (int i = 0; i < ni; i++) for (int j = 0; j < n && ni < 4096; j++) if (pp[j] == in[i]) { int dup = 0; for (int k = 0; k < ni; k++) if (in[k] == pid[j]) dup = 1; if (!dup) in[ni++] = pid[j]; }
  for (int i = 0; i < ni; i++) proc_one(in[i], &r);
  return r;
}
static double sys_busy(void) { FILE *h = fopen("/proc/stat", "r"); double v[8] = {0}; if (!h) return 0; if (fscanf(h, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", v, v+1, v+2, v+3, v+4, v+5, v+6, v+7) < 8) {} fclose(h); return (v[0]+v[1]+v[2]+v[5]+v[6]+v[7]) / sysconf(_SC_CLK_TCK); }
static double self_cpu(void) { struct rusage u; getrusage(RUSAGE_SELF, &u); return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6; }

/* ------------------------------------------------------------------ connections */
enum { CLOSED, TCP, CONNACK, SUBACK, READY, GONE };
typedef struct { char *id; char *grp; int nack; } AckItem;
typedef struct Conn {
  int fd, idx, dom, host; u8 role, st, everok, want_out, lagblk, subok; u32 ev;
  Buf out; u8 *in; size_t inlen, incap; u64 lastsend, retry_at;
  u64 next, quota, due, acked; u32 inflight, win, srvmax; u16 pid; u64 *tab;   /* tab[pid] = (seq+1)<<2 | state(1 pub,2 rel) */
  Buf pre; size_t pre_pid, pre_pl;                                              /* prebuilt PUBLISH */
  u64 *last;                                                                    /* subscriber: last seq+1 per publisher */
  AckItem *aq; size_t aqa, aqb, aqcap; char cid[96];
} Conn;
static Conn *pubs, *subs, *idles; static int ep; static int quitting;
static u64 n_pub, n_bytes, n_acked, n_rej, n_nomatch, n_deliv, n_uniq, n_dup, n_dupflag, n_oooc, n_oood, n_foreign, n_disc, n_reconn, n_resent, n_appack, n_appackd, n_appackerr, n_noid, n_connfail;
static int last_disc_rc = -1, last_rej_rc = -1; static u64 t_firstdel, t_lastdel, t_maxgap, t_lastack; static Hist lat, alat;
static Bits *seen, *ackd; static u64 *domlast; static int pubs_open; static int connecting;
static u8 *payload; static u64 rate_iv, g_now;
#define SEEN(d, p) seen[(size_t)(d) * P + (p)]

static void set_ev(Conn *c, u32 ev) { if (c->ev == ev || c->fd < 0) return; struct epoll_event e = { .events = ev, .data.ptr = c }; epoll_ctl(ep, c->ev ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e); c->ev = ev; }
static void conn_close(Conn *c) { if (c->fd >= 0) { close(c->fd); c->fd = -1; } c->ev = 0; c->inlen = 0; c->out.a = c->out.b = 0; if (c->st == TCP || c->st == CONNACK || c->st == SUBACK) connecting--; c->st = CLOSED; }
static void conn_lost(Conn *c, const char *why) {
  int was = c->st; conn_close(c); if (quitting) return;
  if (was == READY) n_disc++; else n_connfail++;
  if (o_verbose || (n_disc + n_connfail) <= 3) fprintf(stderr, "mqttload: %c%d connection lost: %s\n", c->role, c->idx, why);
  if (o_reconnect) { c->host = (c->host + 1) % nhosts; c->retry_at = now_ns() + 50000000ull; } else if (was != READY && n_connfail < 50 && o_reconnect == 0 && c->everok == 0 && n_connfail < 5) { c->retry_at = now_ns() + 200000000ull; } else c->st = GONE;
}
static void flush_out(Conn *c) {
  while (c->out.b > c->out.a) {
    ssize_t n = send(c->fd, c->out.p + c->out.a, c->out.b - c->out.a, MSG_NOSIGNAL);
    if (n > 0) { c->out.a += n; continue; }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) { set_ev(c, EPOLLIN | EPOLLOUT); return; }
    conn_lost(c, strerror(errno)); return;
  }
  set_ev(c, EPOLLIN | (c->want_out ? EPOLLOUT : 0));
}
static void put_props(Buf *o, int n, int which, int d, u64 seq, int g, Buf *extra) {
  Buf t = {0}; char v[1024];
  for (int i = 0; i < n; i++) { const char *k = which == 0 ? pubprops[i].k : which == 1 ? subprops[i].k : ackprops[i].k, *w = which == 0 ? pubprops[i].v : which == 1 ? subprops[i].v : ackprops[i].v;
    size_t l = expand(v, sizeof v, w, d, seq, g); put8(&t, 0x26); putstr(&t, k, strlen(k)); putstr(&t, v, l); }
  if (extra) put(&t, extra->p + extra->a, extra->b - extra->a);
  putvar(o, t.b); if (t.b) put(o, t.p, t.b); free(t.p);
}
static void send_connect(Conn *c) {
  Buf v = {0}; int fl = 0, clean = c->role == 'S' ? o_clean : 1; if (c->role == 'P' && o_reconnect) clean = 0;
  if (clean) fl |= 2; if (o_user) fl |= 0x80; if (o_pass) fl |= 0x40;
  putstr(&v, "MQTT", 4); put8(&v, o_ver); put8(&v, fl); put16(&v, o_keepalive);
  if (o_ver == 5) { Buf p = {0}; long ex = o_expiry >= 0 ? o_expiry : (clean ? 0 : 3600);
    if (ex && c->role != 'I') { put8(&p, 0x11); put32(&p, ex); }
    if (o_recvmax && c->role == 'S') { put8(&p, 0x21); put16(&p, o_recvmax); }
    putvar(&v, p.b); if (p.b) put(&v, p.p, p.b); free(p.p); }
  putstr(&v, c->cid, strlen(c->cid)); if (o_user) putstr(&v, o_user, strlen(o_user)); if (o_pass) putstr(&v, o_pass, strlen(o_pass));
  put8(&c->out, 0x10); putvar(&c->out, v.b); put(&c->out, v.p, v.b); free(v.p);
}
static void send_subscribe(Conn *c) {
  Buf v = {0}; char f[1024]; put16(&v, 1); if (o_ver == 5) put_props(&v, nsp, 1, c->idx, 0, c->dom, NULL);
  if (c->role == 'I') { size_t l = sprintf(f, "idle/%d", c->idx); putstr(&v, f, l); put8(&v, 0); }
  else for (int i = 0; i < nfilters; i++) { size_t l = expand(f, sizeof f, filters[i], c->idx, 0, c->dom); putstr(&v, f, l); put8(&v, o_subqos); }
  put8(&c->out, 0x82); putvar(&c->out, v.b); put(&c->out, v.p, v.b); free(v.p);
}
static void conn_start(Conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); if (c->fd < 0) die("socket: %s", strerror(errno));
  int one = 1; if (o_nodelay) setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->ev = 0; c->st = TCP; c->retry_at = 0; connecting++; c->subok = 0;
  if (connect(c->fd, (struct sockaddr *)&hosts[c->host].a, sizeof hosts[0].a) < 0 && errno != EINPROGRESS) { conn_lost(c, strerror(errno)); return; }
  set_ev(c, EPOLLIN | EPOLLOUT);
}

/* ------------------------------------------------------------------ publishing */
static void build_pub(Conn *c, u64 seq) {           /* everything before the payload, remaining length included */
  char t[1024]; Buf v = {0}; size_t l = expand(t, sizeof t, o_topic, c->idx, seq, 0);
  putstr(&v, t, l); size_t pidoff = v.b; if (o_qos) put16(&v, 0);
  if (o_ver == 5) { Buf x = {0}; if (o_expire_msg) { put8(&x, 2); put32(&x, o_expire_msg); } put_props(&v, npp, 0, c->idx, seq, 0, &x); free(x.p); }
  c->pre.a = c->pre.b = 0; put8(&c->pre, 0x30 | o_qos << 1 | (o_retain ? 1 : 0)); putvar(&c->pre, v.b + o_size);
  c->pre_pid = c->pre.b + pidoff; put(&c->pre, v.p, v.b); c->pre_pl = c->pre.b; free(v.p);
}
static int dyn_pub;
static void emit_pub(Conn *c, u64 seq, int pid, u64 ts, int dup) {
  if (dyn_pub || !c->pre.b) build_pub(c, seq);
  size_t n = c->pre.b + o_size; u8 *p = buf_room(&c->out, n); memcpy(p, c->pre.p, c->pre.b);
  if (o_qos) { p[c->pre_pid] = pid >> 8; p[c->pre_pid + 1] = pid; } if (dup) p[0] |= 8;
  u8 *q = p + c->pre_pl; memcpy(q, payload, o_size); u32 m = MAGIC, id = c->idx; memcpy(q, &m, 4); memcpy(q + 4, &o_run, 4); memcpy(q + 8, &id, 4); memcpy(q + 12, &seq, 8); memcpy(q + 20, &ts, 8);
  c->out.b += n;
}
static int alloc_pid(Conn *c) { if (!c->tab) c->tab = calloc(65536, 8); for (int i = 0; i < 65535; i++) { if (++c->pid == 0) c->pid = 1; if (!c->tab[c->pid]) return c->pid; } return 0; }
static void pub_fill(Conn *c) {
  if (c->st != READY || !pubs_open) return; u64 now = now_ns(); c->lagblk = 0; c->want_out = 0; int k = 0;
  while (c->next < c->quota) {
    if (o_qos && c->inflight >= c->win) break;
    if (o_lag && n_pub * (u64)G > n_uniq + (u64)o_lag * G) { c->lagblk = 1; break; }
    if (c->out.b - c->out.a >= 65536) { c->want_out = 1; break; }
    u64 ts = now; if (rate_iv) { if (c->due > now) break; ts = c->due; c->due += rate_iv; }
    int pid = 0; if (o_qos) { pid = alloc_pid(c); if (!pid) break; c->tab[pid] = (c->next + 1) << 2 | 1; c->inflight++; }
    emit_pub(c, c->next, pid, ts, 0); c->next++; n_pub++; n_bytes += o_size; if ((++k & 31) == 0) now = now_ns();
  }
  if (!o_qos && c->next < c->quota && !c->lagblk && !rate_iv) c->want_out = 1;
  flush_out(c);
}
static void pub_resend(Conn *c, int present) { if (!c->tab) return; u64 now = now_ns();
  for (u32 i = 1; i < 65536; i++) if (c->tab[i]) { if ((c->tab[i] & 3) == 2 && present) { put8(&c->out, 0x62); put8(&c->out, 2); put16(&c->out, i); } else { c->tab[i] = (c->tab[i] & ~3ull) | 1; emit_pub(c, (c->tab[i] >> 2) - 1, i, now, present); } n_resent++; } }
static void pub_done1(Conn *c, int pid, int rc) {
  if (!c->tab || !c->tab[pid]) return; u64 seq = (c->tab[pid] >> 2) - 1; c->tab[pid] = 0; c->inflight--; t_lastack = g_now;
  if (rc >= 0x80) { n_rej++; last_rej_rc = rc; return; } if (rc == 0x10) n_nomatch++;
  if (!bset(&ackd[c->idx], seq)) { n_acked++; c->acked++; }
}
/* application level acknowledgement: publish to <queue>/$ack with the message-id */
static void appack_pump(Conn *c) {
  while (c->aqa < c->aqb && (!o_ackqos || c->inflight < c->srvmax)) {
    AckItem *a = &c->aq[c->aqa++]; Buf v = {0}; char *topic = a->id + strlen(a->id) + 1; char t[1200]; int tl;
    tl = snprintf(t, sizeof t, "%s/%s", topic, a->nack ? "$nack" : "$ack"); putstr(&v, t, tl); int pid = 0;
    if (o_ackqos) { pid = alloc_pid(c); c->tab[pid] = 1; c->inflight++; put16(&v, pid); }
    Buf x = {0}; put8(&x, 0x26); putstr(&x, "message-id", 10); putstr(&x, a->id, strlen(a->id));
    if (a->grp) { put8(&x, 0x26); putstr(&x, "group-id", 8); putstr(&x, a->grp, strlen(a->grp)); }
    if (o_ver == 5) put_props(&v, nap, 2, c->idx, 0, c->dom, &x); free(x.p);
    put8(&c->out, 0x30 | o_ackqos << 1); putvar(&c->out, v.b); put(&c->out, v.p, v.b); free(v.p); free(a->id); free(a->grp); n_appack++;
  }
  if (c->aqa == c->aqb) c->aqa = c->aqb = 0;
}
static void deliver(Conn *c, const u8 *p, u32 n, int fl, u64 now) {
  if (n < 2) return; u32 tl = rd16(p), o = 2 + tl; int qos = fl >> 1 & 3; u16 pid = 0; if (o > n) return; const u8 *topic = p + 2;
  if (qos) { if (o + 2 > n) return; pid = rd16(p + o); o += 2; }
  const u8 *pr = NULL; u32 prn = 0; if (o_ver == 5) { int k = rdvar(p + o, n - o, &prn); if (k <= 0 || o + k + prn > n) return; o += k; pr = p + o; o += prn; }
  const u8 *pl = p + o; u32 pn = n - o; n_deliv++; if (fl & 8) n_dupflag++;
  if (!t_firstdel) t_firstdel = now; if (t_lastdel && now - t_lastdel > t_maxgap) t_maxgap = now - t_lastdel; t_lastdel = now;
  u32 m, run, id; u64 seq, ts;
  if (pn >= HDR && (memcpy(&m, pl, 4), m == MAGIC) && (memcpy(&run, pl + 4, 4), run == o_run || o_drainonly) && (memcpy(&id, pl + 8, 4), (int)id < P)) {
    memcpy(&seq, pl + 12, 8); memcpy(&ts, pl + 20, 8); hadd(&lat, (now > ts ? now - ts : 0) / 1000);
    if (bset(&SEEN(c->dom, id), seq)) n_dup++; else { n_uniq++;
      if (c->last[id] && seq + 1 < c->last[id]) n_oooc++; else c->last[id] = seq + 1;
      u64 *dl = &domlast[(size_t)c->dom * P + id]; if (seq + 1 < *dl) n_oood++; else *dl = seq + 1; }
  } else n_foreign++;
  if (qos == 1) { u8 a[4] = { 0x40, 2, pid >> 8, pid }; put(&c->out, a, 4); } else if (qos == 2) { u8 a[4] = { 0x50, 2, pid >> 8, pid }; put(&c->out, a, 4); }
  if (o_appack) {
    const u8 *id = NULL, *gr = NULL; u32 il = 0, gl = 0, i = 0;
    while (i < prn) { u8 t = pr[i++]; switch (t) {
      case 0x26: { if (i + 2 > prn) { i = prn; break; } u32 kl = rd16(pr + i); const u8 *k = pr + i + 2; i += 2 + kl; if (i + 2 > prn) { i = prn; break; } u32 vl = rd16(pr + i); const u8 *v = pr + i + 2; i += 2 + vl;
        if (kl == 10 && !memcmp(k, "message-id", 10)) { id = v; il = vl; } else if (kl == 8 && !memcmp(k, "group-id", 8)) { gr = v; gl = vl; } break; }
      case 0x01: i += 1; break; case 0x02: i += 4; break; case 0x23: i += 2; break; case 0x08: case 0x09: case 0x03: i += 2 + rd16(pr + i); break;
      case 0x0b: { u32 x; int k = rdvar(pr + i, prn - i, &x); i += k > 0 ? k : prn; break; } default: i = prn; } }
    if (!id) n_noid++; else {
      if (c->aqb == c->aqcap) { c->aqcap = c->aqcap ? c->aqcap * 2 : 64; c->aq = xrealloc(c->aq, c->aqcap * sizeof *c->aq); }
      AckItem *a = &c->aq[c->aqb++]; const char *tp = o_acktopic; u32 tpl = tp ? strlen(tp) : tl; a->id = malloc(il + 1 + tpl + 1); memcpy(a->id, id, il); a->id[il] = 0; memcpy(a->id + il + 1, tp ? (const u8 *)tp : topic, tpl); a->id[il + 1 + tpl] = 0;
      a->grp = NULL; if (gr) { a->grp = malloc(gl + 1); memcpy(a->grp, gr, gl); a->grp[gl] = 0; } a->nack = o_nackpct && rand() % 100 < o_nackpct; }
  }
}
static void become_ready(Conn *c) { c->st = READY; connecting--; if (c->everok) n_reconn++; c->everok = 1; }
static int want_sub(Conn *c) { return c->role == 'S' || (c->role == 'I' && o_idlesub); }
static int packet(Conn *c, u8 h, const u8 *p, u32 n, u64 now) {
  switch (h >> 4) {
  case 2: { if (n < 2) return -1; int rc = p[1], present = p[0] & 1; if (rc) { die("CONNACK refused: code %d (%c%d)", rc, c->role, c->idx); }
    c->srvmax = 65535; if (o_ver == 5 && n > 2) { u32 pl; int k = rdvar(p + 2, n - 2, &pl); const u8 *q = p + 2 + k, *e = p + n; while (k > 0 && q < e) switch (*q++) {
        case 0x21: c->srvmax = rd16(q); q += 2; break; case 0x13: { int ka = rd16(q); if (ka && (!o_keepalive || ka < o_keepalive)) o_keepalive = ka; q += 2; break; } case 0x22: q += 2; break;
        case 0x11: case 0x27: q += 4; break; case 0x24: case 0x25: case 0x28: case 0x29: case 0x2a: q += 1; break;
        case 0x12: case 0x1a: case 0x1c: case 0x1f: case 0x15: case 0x16: q += 2 + rd16(q); break; case 0x26: q += 2 + rd16(q); q += 2 + rd16(q); break; default: q = e; } }
    c->win = o_window < (int)c->srvmax ? o_window : c->srvmax;
    if (c->role == 'P') { int re = c->everok; become_ready(c); if (re) pub_resend(c, present); pub_fill(c); }
    else if (want_sub(c) && !o_cleaning && (!present || o_resub || o_clean)) { send_subscribe(c); c->st = SUBACK; }
    else become_ready(c);
    if (c->role == 'S' && c->everok && o_ackqos && c->tab) { memset(c->tab, 0, 65536 * 8); c->inflight = 0; }
    break; }
  case 3: deliver(c, p, n, h & 15, now); break;
  case 4: case 5: case 7: { if (n < 2) return -1; int pid = rd16(p), rc = n > 2 ? p[2] : 0;
    if (c->role == 'P') { if ((h >> 4) == 5 && rc < 0x80) { if (c->tab && c->tab[pid]) { c->tab[pid] = (c->tab[pid] & ~3ull) | 2; } put8(&c->out, 0x62); put8(&c->out, 2); put16(&c->out, pid); } else pub_done1(c, pid, rc); }
    else { if (c->tab && c->tab[pid]) { c->tab[pid] = 0; c->inflight--; n_appackd++; if (rc >= 0x80) n_appackerr++; } }
    break; }
  case 6: { if (n < 2) return -1; u8 a[4] = { 0x70, 2, p[0], p[1] }; put(&c->out, a, 4); break; }
  case 9: { u32 o = 2; if (o_ver == 5) { u32 pl; int k = rdvar(p + 2, n - 2, &pl); if (k <= 0) return -1; o += k + pl; } for (; o < n; o++) if (p[o] >= 0x80) die("SUBACK refused: 0x%02x", p[o]); if (c->st == SUBACK) become_ready(c); break; }
  case 13: break;
  case 14: last_disc_rc = n ? p[0] : 0; return -2;
  default: break; }
  return 0;
}
static u8 rbuf[1 << 18];
static void on_read(Conn *c) {
  for (int rounds = 0; rounds < 4; rounds++) {
    u8 *b = rbuf; size_t have = 0; if (c->inlen) { have = c->inlen; memcpy(rbuf, c->in, have < sizeof rbuf ? have : 0); }
    size_t cap = sizeof rbuf; static u8 *big; static size_t bigcap;
    if (have >= sizeof rbuf / 2) { if (bigcap < have + (1 << 20)) { bigcap = have + (1 << 20); big = xrealloc(big, bigcap); } memcpy(big, c->in, have); b = big; cap = bigcap; }
    ssize_t r = recv(c->fd, b + have, cap - have, 0);
    if (r < 0) { if (errno == EINTR) continue; if (errno == EAGAIN) break; conn_lost(c, strerror(errno)); return; }
    if (r == 0) { char w[64]; snprintf(w, 64, "closed by broker (last DISCONNECT rc %d)", last_disc_rc); conn_lost(c, w); return; }
    size_t n = have + r, o = 0; u64 now = g_now = now_ns();
    while (n - o >= 2) { u32 len; int k = rdvar(b + o + 1, n - o - 1, &len); if (k == 0) break; if (k < 0) { conn_lost(c, "bad length"); return; }
      if (o + 1 + k + len > n) break; int x = packet(c, b[o], b + o + 1 + k, len, now); if (x == -1) { conn_lost(c, "malformed packet"); return; } if (c->fd < 0) return; o += 1 + k + len; }
    size_t left = n - o; if (left) { if (c->incap < left) { c->incap = left + 4096; c->in = xrealloc(c->in, c->incap); } memcpy(c->in, b + o, left); } c->inlen = left;
    if (n < cap) break;
  }
  if (c->fd < 0) return;
  if (o_appack && c->role == 'S') appack_pump(c);
  if (c->role == 'P' && c->st == READY) pub_fill(c); else flush_out(c);
}
static void on_event(Conn *c, u32 ev) {
  if (c->fd < 0) return;
  if (c->st == TCP) { int e = 0; socklen_t l = sizeof e; getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &l); if (e) { conn_lost(c, strerror(e)); return; } if (!(ev & EPOLLOUT)) return; c->st = CONNACK; send_connect(c); flush_out(c); return; }
  if (ev & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_read(c);
  if (c->fd >= 0 && (ev & EPOLLOUT)) { if (c->role == 'P' && c->st == READY) { if (c->out.b - c->out.a < 65536) pub_fill(c); else flush_out(c); } else flush_out(c); }
}

/* ------------------------------------------------------------------ loop */
static Conn **todo; static int ntodo, todopos;
static void each(void (*f)(Conn *)) { for (int i = 0; i < P; i++) f(&pubs[i]); for (int i = 0; i < S; i++) f(&subs[i]); for (int i = 0; i < o_idle; i++) f(&idles[i]); }
static u64 tick_now; static u64 t_next_tick; static u64 v_pub, v_del;
static void tick(Conn *c) {
  if (c->st == CLOSED && c->retry_at && c->retry_at <= tick_now) conn_start(c);
  if (o_keepalive && c->st == READY && tick_now - c->lastsend > (u64)o_keepalive * 400000000ull) { u8 a[2] = { 0xC0, 0 }; put(&c->out, a, 2); c->lastsend = tick_now; flush_out(c); }
}
static u64 t_phase_end;
static int loop_until(int (*cond)(void), double timeout) {
  u64 end = timeout > 0 ? now_ns() + (u64)(timeout * 1e9) : 0; struct epoll_event evs[512]; u64 sec = now_ns() + 1000000000ull;
  for (;;) {
    if (cond()) return 1; u64 now = now_ns(); if (end && now >= end) return 0; if (t_phase_end && now >= t_phase_end) { t_phase_end = 0; for (int i = 0; i < P; i++) pubs[i].quota = pubs[i].next; }
    while (connecting < o_connconc && todopos < ntodo) conn_start(todo[todopos++]);
    struct timespec ts = { 0, 20000000 };
    if (rate_iv && pubs_open) { u64 d = ~0ull; for (int i = 0; i < P; i++) if (pubs[i].next < pubs[i].quota && pubs[i].st == READY && pubs[i].inflight < pubs[i].win + !o_qos && pubs[i].due < d) d = pubs[i].due; if (d != ~0ull) { u64 w = d > now ? d - now : 0; if (w < 20000000) ts.tv_nsec = w; } }
    if (o_batchus && pubs_open) { struct timespec z = { 0, o_batchus * 1000L }; nanosleep(&z, NULL); }
    int n = epoll_pwait2(ep, evs, 512, &ts, NULL); u64 d0 = n_uniq;
    for (int i = 0; i < n; i++) on_event(evs[i].data.ptr, evs[i].events);
    if (pubs_open && (rate_iv || (o_lag && n_uniq != d0))) for (int i = 0; i < P; i++) if (rate_iv ? pubs[i].due <= now_ns() : pubs[i].lagblk) pub_fill(&pubs[i]);
    now = now_ns(); if (now >= t_next_tick) { tick_now = now; t_next_tick = now + 50000000ull; each(tick); }
    if (o_verbose && now >= sec) { sec += 1000000000ull; fprintf(stderr, "  pub %llu/s (total %llu acked %llu)  del %llu/s (uniq %llu dup %llu)\n", (unsigned long long)(n_pub - v_pub), (unsigned long long)n_pub, (unsigned long long)n_acked, (unsigned long long)(n_deliv - v_del), (unsigned long long)n_uniq, (unsigned long long)n_dup); v_pub = n_pub; v_del = n_deliv; }
  }
}
static void queue_conns(Conn *v, int n) { todo = xrealloc(todo, (ntodo + n) * sizeof *todo); for (int i = 0; i < n; i++) todo[ntodo++] = &v[i]; }
static int all_ready(Conn *v, int n) { int r = 1; for (int i = 0; i < n; i++) if (v[i].st != READY && v[i].st != GONE) r = 0; return r; }
static int n_gone(Conn *v, int n) { int r = 0; for (int i = 0; i < n; i++) r += v[i].st == GONE; return r; }
static int c_subs(void) { return all_ready(subs, S); } static int c_pubs(void) { return all_ready(pubs, P); } static int c_idle(void) { return all_ready(idles, o_idle); }
static int c_never(void) { return 0; }
static int c_gate(void) { return access(o_gate, F_OK) == 0; }
static int c_pubdone(void) { for (int i = 0; i < P; i++) { Conn *c = &pubs[i]; if (c->st == GONE) continue; if (c->next < c->quota || c->inflight || c->out.b > c->out.a) return 0; } return 1; }
static u64 expected(void) { return o_drainonly ? o_count * G : (o_qos ? n_acked : n_pub) * (u64)G; }
static u64 prog_u, prog_t;
static int c_drained(void) { if (n_uniq >= expected()) return 1; u64 x = n_uniq + n_acked; if (x != prog_u) { prog_u = x; prog_t = now_ns(); } return now_ns() - prog_t > (u64)(o_draintmo * 1e9); }
static int c_all(void) { u64 x = n_uniq + n_acked + n_pub; if (x != prog_u) { prog_u = x; prog_t = now_ns(); }
  if (c_pubdone() && (S == 0 || n_uniq >= expected())) return 1; return !t_phase_end && now_ns() - prog_t > (u64)(o_draintmo * 1e9); }
static int c_acksflushed(void) { for (int i = 0; i < S; i++) if (subs[i].st == READY && (subs[i].out.b > subs[i].out.a || subs[i].aqa < subs[i].aqb || (o_ackqos && subs[i].inflight))) return 0; return 1; }
static void bye(Conn *c) { if (c->fd >= 0) { if (c->st == READY) { put8(&c->out, 0xE0); put8(&c->out, 0); struct timeval tv = { 2, 0 }; setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv); fcntl(c->fd, F_SETFL, 0); flush_out(c); } conn_close(c); } }

static void usage(void) { fputs(
"mqttload [flags]   (JSON on stdout)\n"
" --host H[:p][,H:p..] --port N --version 5|4  --user U --pass W --prefix ID  --label TEXT\n"
" -P pubs -S subs --size B --qos 0|1|2 --sub-qos Q --window W (unacked per publisher)\n"
" --count TOTAL | --duration SEC   --rate MSG/S (open loop, latency from the scheduled time)\n"
" --max-lag N   publishers pause while published-delivered > N (needed for QoS0 / no-drop runs)\n"
" --topic T     %d publisher  %n sequence  %k sequence%%keys (--keys K)  %l sequence/keys\n"
"               %x as %k, each publisher beginning elsewhere  %r run id\n"
" --filter F    (repeatable) %d subscriber  %g group      --pub-prop k=v --sub-prop k=v --ack-prop k=v\n"
" --groups G    subscriber i is in group i%%G; every message is expected once per group\n"
"               default: 1 for $share/ $queue/ $q/ filters, else S (every subscriber gets all)\n"
" --app-ack     publish to <delivered topic>/$ack (or --ack-topic T) with message-id/group-id; --ack-qos Q --nack-pct N\n"
" --backlog     subscribe+disconnect, publish all with nobody there, then drain (--no-presub, --settle S)\n"
"               --gate F: after publishing make file F.ready, and drain only once file F exists (at most 300 s)\n"
" --drain-only  consume --count messages left by an earlier run\n"
" --persistent  subscribers use clean start 0 + --expiry S (3600); deleted at the end unless --keep-session   --recv-max N   --keepalive S\n"
" --reconnect   reconnect and resend unacked (failover / kill -9 tests); --resub always re-subscribe\n"
" --idle N --idle-sub --hold S   N idle connections first, report RSS/conn and idle CPU\n"
" --batch-us U  sleep U microseconds per loop so that the generator is woken less often (adds U to latency)\n"
" --broker-pid PID (repeatable, tree included)   --drain-timeout S   --msg-expiry S  --retain -v\n", stderr); exit(1); }

enum { O_HOST = 256, O_PORT, O_VER, O_USER, O_PASS, O_PREFIX, O_LABEL, O_SIZE, O_QOS, O_SUBQOS, O_WINDOW, O_COUNT, O_DUR, O_RATE, O_LAG, O_TOPIC, O_FILTER, O_PP, O_SP, O_AP, O_GROUPS, O_KEYS, O_APPACK, O_ACKTOPIC, O_ACKQOS, O_NACK, O_BACKLOG, O_NOPRESUB, O_SETTLE, O_DRAINONLY, O_PERS, O_EXPIRY, O_RECVMAX, O_KEEP, O_RECON, O_RESUB, O_IDLE, O_IDLESUB, O_HOLD, O_BPID, O_DTMO, O_MEXP, O_RETAIN, O_CONC, O_BATCH, O_KEEPSESS, O_GATE };
static struct option lo[] = { {"host",1,0,O_HOST},{"port",1,0,O_PORT},{"version",1,0,O_VER},{"user",1,0,O_USER},{"pass",1,0,O_PASS},{"prefix",1,0,O_PREFIX},{"label",1,0,O_LABEL},{"size",1,0,O_SIZE},{"qos",1,0,O_QOS},{"sub-qos",1,0,O_SUBQOS},{"window",1,0,O_WINDOW},{"count",1,0,O_COUNT},{"duration",1,0,O_DUR},{"rate",1,0,O_RATE},{"max-lag",1,0,O_LAG},{"topic",1,0,O_TOPIC},{"filter",1,0,O_FILTER},{"pub-prop",1,0,O_PP},{"sub-prop",1,0,O_SP},{"ack-prop",1,0,O_AP},{"groups",1,0,O_GROUPS},{"keys",1,0,O_KEYS},{"app-ack",0,0,O_APPACK},{"ack-topic",1,0,O_ACKTOPIC},{"ack-qos",1,0,O_ACKQOS},{"nack-pct",1,0,O_NACK},{"backlog",0,0,O_BACKLOG},{"no-presub",0,0,O_NOPRESUB},{"settle",1,0,O_SETTLE},{"drain-only",0,0,O_DRAINONLY},{"persistent",0,0,O_PERS},{"expiry",1,0,O_EXPIRY},{"recv-max",1,0,O_RECVMAX},{"keepalive",1,0,O_KEEP},{"reconnect",0,0,O_RECON},{"resub",0,0,O_RESUB},{"idle",1,0,O_IDLE},{"idle-sub",0,0,O_IDLESUB},{"hold",1,0,O_HOLD},{"broker-pid",1,0,O_BPID},{"drain-timeout",1,0,O_DTMO},{"msg-expiry",1,0,O_MEXP},{"retain",0,0,O_RETAIN},{"conn-concurrency",1,0,O_CONC},{"batch-us",1,0,O_BATCH},{"keep-session",0,0,O_KEEPSESS},{"gate",1,0,O_GATE},{0,0,0,0} };
#define KV(arr, n) do { char *e = strchr(optarg, '='); if (!e || n == MAXOPT) usage(); *e = 0; arr[n].k = optarg; arr[n].v = e + 1; n++; } while (0)

static void jproc(const char *name, Proc a, Proc b, double secs, u64 per, u64 deliv) {
  double cpu = b.cpu_u + b.cpu_s - a.cpu_u - a.cpu_s;
  printf(",\"%s\":{\"cpu_s\":%.2f,\"user_s\":%.2f,\"sys_s\":%.2f,\"cpu_pct\":%.1f,\"us_per_msg\":%.2f,\"us_per_delivery\":%.2f,\"rss_mb\":%.1f,\"rss_peak_mb\":%.1f,\"written_mb\":%.1f}", name, cpu, b.cpu_u - a.cpu_u, b.cpu_s - a.cpu_s, secs > 0 ? cpu / secs * 100 : 0, per ? cpu * 1e6 / per : 0, deliv ? cpu * 1e6 / deliv : 0, b.rss_kb / 1024.0, b.hwm_kb / 1024.0, (b.wbytes - a.wbytes) / 1048576.0);
}
int main(int argc, char **argv) {
  int c; signal(SIGPIPE, SIG_IGN); setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  while ((c = getopt_long(argc, argv, "P:S:v", lo, NULL)) != -1) switch (c) {
    case 'P': P = atoi(optarg); break; case 'S': S = atoi(optarg); break; case 'v': o_verbose = 1; break;
    case O_HOST: o_host = optarg; break; case O_PORT: o_port = atoi(optarg); break; case O_VER: o_ver = atoi(optarg); break; case O_USER: o_user = optarg; break; case O_PASS: o_pass = optarg; break; case O_PREFIX: o_prefix = optarg; break; case O_LABEL: o_label = optarg; break;
    case O_SIZE: o_size = atoi(optarg); break; case O_QOS: o_qos = atoi(optarg); break; case O_SUBQOS: o_subqos = atoi(optarg); break; case O_WINDOW: o_window = atoi(optarg); break; case O_COUNT: o_count = strtoull(optarg, 0, 10); break; case O_DUR: o_dur = atof(optarg); break; case O_RATE: o_rate = atof(optarg); break; case O_LAG: o_lag = atol(optarg); break;
    case O_TOPIC: o_topic = optarg; break; case O_FILTER: if (nfilters < MAXOPT) filters[nfilters++] = optarg; break; case O_PP: KV(pubprops, npp); break; case O_SP: KV(subprops, nsp); break; case O_AP: KV(ackprops, nap); break;
    case O_GROUPS: G = atoi(optarg); break; case O_KEYS: o_keys = atoi(optarg); break; case O_APPACK: o_appack = 1; break; case O_ACKTOPIC: o_acktopic = optarg; break; case O_ACKQOS: o_ackqos = atoi(optarg); break; case O_NACK: o_nackpct = atoi(optarg); break;
    case O_BACKLOG: o_backlog = 1; o_clean = 0; break; case O_NOPRESUB: o_presub = 0; break; case O_SETTLE: o_settle = atof(optarg); break; case O_DRAINONLY: o_drainonly = 1; break; case O_PERS: o_clean = 0; break; case O_EXPIRY: o_expiry = atol(optarg); break; case O_RECVMAX: o_recvmax = atoi(optarg); break; case O_KEEP: o_keepalive = atoi(optarg); break;
    case O_RECON: o_reconnect = 1; break; case O_RESUB: o_resub = 1; break; case O_IDLE: o_idle = atoi(optarg); break; case O_IDLESUB: o_idlesub = 1; break; case O_HOLD: o_hold = atof(optarg); break; case O_BPID: if (nbp < 64) bpids[nbp++] = atoi(optarg); break; case O_DTMO: o_draintmo = atof(optarg); break; case O_MEXP: o_expire_msg = atoi(optarg); break; case O_RETAIN: o_retain = 1; break; case O_CONC: o_connconc = atoi(optarg); break; case O_KEEPSESS: o_keepsess = 1; break; case O_GATE: o_gate = optarg; break; case O_BATCH: o_batchus = atoi(optarg); break;
    default: usage(); }
  (void)o_noshare_warn; (void)o_puback_wait; (void)n_connfail;
  if (o_size < HDR) o_size = HDR; if (o_subqos < 0) o_subqos = o_qos; if (!nfilters) filters[nfilters++] = "bench/#"; if (o_window > 65535) o_window = 65535; if (o_drainonly) { P = P > 0 ? P : 1; }
  if (!G) G = (!strncmp(filters[0], "$share/", 7) || !strncmp(filters[0], "$queue/", 7) || !strncmp(filters[0], "$q/", 3)) ? 1 : (S > 0 ? S : 1); if (S == 0) G = 1;
  { char h[512]; snprintf(h, sizeof h, "%s", o_host); char *sv, *t = strtok_r(h, ",", &sv); while (t && nhosts < 16) { int pt = o_port; char *q = strchr(t, ':'); if (q) { *q = 0; pt = atoi(q + 1); } hosts[nhosts].a.sin_family = AF_INET; hosts[nhosts].a.sin_port = htons(pt); if (!strcmp(t, "localhost")) t = "127.0.0.1"; if (inet_pton(AF_INET, t, &hosts[nhosts].a.sin_addr) != 1) die("bad host %s", t); nhosts++; t = strtok_r(NULL, ",", &sv); } }
  struct rlimit rl; getrlimit(RLIMIT_NOFILE, &rl); rl.rlim_cur = rl.rlim_max; setrlimit(RLIMIT_NOFILE, &rl);
  srand(now_ns()); o_run = (u32)(now_ns() * 2654435761u) ^ getpid(); ep = epoll_create1(0);
  char pfx[64]; snprintf(pfx, sizeof pfx, "%s", o_prefix ? o_prefix : ""); if (!o_prefix) snprintf(pfx, sizeof pfx, "ml%08x", o_run);
  pubs = calloc(P + 1, sizeof *pubs); subs = calloc(S + 1, sizeof *subs); idles = calloc(o_idle + 1, sizeof *idles); seen = calloc((size_t)G * P + 1, sizeof *seen); ackd = calloc(P + 1, sizeof *ackd); domlast = calloc((size_t)G * P + 1, 8);
  payload = malloc(o_size); for (int i = 0; i < o_size; i++) payload[i] = "abcdefghijklmnopqrstuvwxyz012345"[(i * 7 + i / 32) & 31];
  dyn_pub = has_seq(o_topic); for (int i = 0; i < npp; i++) dyn_pub |= has_seq(pubprops[i].v);
  for (int i = 0; i < P; i++) { pubs[i].fd = -1; pubs[i].role = 'P'; pubs[i].idx = i; pubs[i].host = i % nhosts; sprintf(pubs[i].cid, "%s-p%d", pfx, i); pubs[i].quota = o_dur > 0 ? ~0ull >> 3 : o_count / P + (i < (int)(o_count % P)); }
  for (int i = 0; i < S; i++) { subs[i].fd = -1; subs[i].role = 'S'; subs[i].idx = i; subs[i].dom = i % G; subs[i].host = i % nhosts; sprintf(subs[i].cid, "%s-s%d", pfx, i); subs[i].last = calloc(P + 1, 8); }
  for (int i = 0; i < o_idle; i++) { idles[i].fd = -1; idles[i].role = 'I'; idles[i].idx = i; idles[i].host = i % nhosts; sprintf(idles[i].cid, "%s-i%d", pfx, i); }
  if (o_rate > 0) rate_iv = (u64)(1e9 * P / o_rate);

  json_open = 1; printf("{\"label\":\"%s\",\"version\":%d,\"P\":%d,\"S\":%d,\"G\":%d,\"size\":%d,\"qos\":%d,\"window\":%d", o_label, o_ver, P, S, G, o_size, o_qos, o_window);
  if (o_idle) {
    Proc a = proc_sample(); u64 t0 = now_ns(); queue_conns(idles, o_idle); int ok = loop_until(c_idle, 60); double dt = (now_ns() - t0) / 1e9; loop_until(c_never, 1); Proc b = proc_sample(); u64 t1 = now_ns(); loop_until(c_never, o_hold); Proc d = proc_sample(); double hs = (now_ns() - t1) / 1e9; int up = 0; for (int i = 0; i < o_idle; i++) up += idles[i].st == READY;
    printf(",\"idle\":{\"n\":%d,\"up\":%d,\"complete\":%d,\"connects_per_s\":%.0f,\"connect_cpu_us\":%.1f,\"rss_before_mb\":%.1f,\"rss_after_mb\":%.1f,\"kb_per_conn\":%.2f,\"idle_cpu_pct\":%.2f}", o_idle, up, ok, up / dt, up ? (b.cpu_u + b.cpu_s - a.cpu_u - a.cpu_s) * 1e6 / up : 0, a.rss_kb / 1024.0, d.rss_kb / 1024.0, up ? (double)(d.rss_kb - a.rss_kb) / up : 0, (d.cpu_u + d.cpu_s - b.cpu_u - b.cpu_s) / hs * 100);
    if (P + S == 0) { printf("}\n"); quitting = 1; return 0; }
  }
  Proc p0, p1, p2; double b0, b1, s0, s1; u64 t0, tp, td;
  if (o_drainonly) { P = P ? P : 1; }
  if (o_backlog && o_presub) { queue_conns(subs, S); if (!loop_until(c_subs, 60)) die("subscribers not ready in 60 s"); loop_until(c_never, 0.2); quitting = 1; for (int i = 0; i < S; i++) { bye(&subs[i]); subs[i].everok = 0; } quitting = 0; loop_until(c_never, 0.3); }
  if (!o_backlog && !o_drainonly) { queue_conns(subs, S); if (!loop_until(c_subs, 60) || n_gone(subs, S)) die("subscribers not ready (%d refused)", n_gone(subs, S)); }
  if (!o_drainonly) { queue_conns(pubs, P); if (!loop_until(c_pubs, 60) || n_gone(pubs, P)) die("publishers not ready (%d refused)", n_gone(pubs, P)); loop_until(c_never, 0.2); }
  p0 = proc_sample(); b0 = sys_busy(); s0 = self_cpu(); t0 = now_ns(); prog_t = t0; t_lastdel = 0; t_maxgap = 0;
  if (!o_drainonly) { if (o_dur > 0) t_phase_end = t0 + (u64)(o_dur * 1e9); for (int i = 0; i < P; i++) pubs[i].due = t0 + rate_iv * i / P; pubs_open = 1; for (int i = 0; i < P; i++) pub_fill(&pubs[i]); }
  if (o_backlog) { int k = S; S = 0; loop_until(c_all, 0); S = k; } else if (!o_drainonly) loop_until(c_all, 0);
  tp = o_qos && t_lastack ? t_lastack : now_ns(); Proc pm = proc_sample(); double sm = self_cpu(), bm = sys_busy();
  if (o_backlog || o_drainonly) {
    if (o_backlog) loop_until(c_never, o_settle);
    if (o_gate) { char f[4096]; snprintf(f, sizeof f, "%s.ready", o_gate); int fd = open(f, O_CREAT | O_WRONLY, 0644); if (fd >= 0) close(fd); loop_until(c_gate, 300); }
    p1 = proc_sample(); b1 = sys_busy(); s1 = self_cpu(); u64 td0 = now_ns(); prog_t = td0; ntodo = todopos = 0; if (!o_presub || o_drainonly) o_resub = 1; queue_conns(subs, S); loop_until(c_drained, 0); loop_until(c_acksflushed, 5); td = t_lastdel ? t_lastdel : now_ns(); p2 = proc_sample();
    double ds = (td - td0) / 1e9, ps = (tp - t0) / 1e9;
    if (!o_drainonly) { printf(",\"publish_s\":%.3f,\"published_per_s\":%.0f", ps, n_pub / ps); jproc("broker_publish", p0, pm, ps, n_pub, 0); printf(",\"gen_cpu_publish_s\":%.2f,\"other_cpu_cores\":%.2f,\"rss_backlog_mb\":%.1f", sm - s0, ((bm - b0) - (sm - s0) - (pm.cpu_u + pm.cpu_s - p0.cpu_u - p0.cpu_s)) / ps, p1.rss_kb / 1024.0); }
    printf(",\"drain_s\":%.3f,\"delivered_per_s\":%.0f", ds, n_uniq / ds); jproc("broker_drain", p1, p2, ds, n_uniq, n_deliv); jproc("broker", p0, p2, (td - t0) / 1e9, n_pub ? n_pub : n_uniq, n_deliv); (void)b1; (void)s1;
  } else {
    loop_until(c_acksflushed, 5); p2 = proc_sample(); double be = sys_busy(), se = self_cpu(); td = now_ns(); double el = (td - t0) / 1e9; u64 tl = t_lastdel > t0 ? t_lastdel : td; double ds = (tl - t0) / 1e9; u64 tpe = o_qos ? (t_lastack > t0 ? t_lastack : td) : td;
    printf(",\"published_per_s\":%.0f,\"delivered_per_s\":%.0f,\"msgs_per_s\":%.0f,\"elapsed_s\":%.3f", n_pub / ((tpe - t0) / 1e9), n_uniq / ds, S ? n_uniq / (double)G / ds : n_pub / ((tpe - t0) / 1e9), ds);
    jproc("broker", p0, p2, el, n_pub, n_deliv); printf(",\"gen_cpu_us_per_msg\":%.2f,\"gen_cpu_pct\":%.0f,\"other_cpu_cores\":%.2f", n_pub ? (se - s0) * 1e6 / n_pub : 0, (se - s0) / el * 100, ((be - b0) - (se - s0) - (p2.cpu_u + p2.cpu_s - p0.cpu_u - p0.cpu_s)) / el);
  }
  u64 lost = 0; if (S && !o_drainonly) for (int p = 0; p < P; p++) for (u64 q = 0; q < pubs[p].next; q++) { if (o_qos && !bget(&ackd[p], q)) continue; for (int g = 0; g < G; g++) lost += !bget(&SEEN(g, p), q); }
  if (o_drainonly) lost = expected() > n_uniq ? expected() - n_uniq : 0;
  u64 unacked = 0; if (o_qos && !o_drainonly) unacked = n_pub - n_acked - n_rej;
  printf(",\"published\":%llu,\"acked\":%llu,\"unacked\":%llu,\"rejected\":%llu,\"delivered\":%llu,\"unique\":%llu,\"lost\":%llu,\"dup\":%llu,\"dup_flag\":%llu,\"ooo_conn\":%llu,\"ooo_group\":%llu,\"foreign\":%llu", (unsigned long long)n_pub, (unsigned long long)n_acked, (unsigned long long)unacked, (unsigned long long)n_rej, (unsigned long long)n_deliv, (unsigned long long)n_uniq, (unsigned long long)lost, (unsigned long long)n_dup, (unsigned long long)n_dupflag, (unsigned long long)n_oooc, (unsigned long long)n_oood, (unsigned long long)n_foreign);
  printf(",\"lat_us\":{\"p50\":%.0f,\"p90\":%.0f,\"p99\":%.0f,\"p999\":%.0f,\"max\":%llu,\"mean\":%.0f}", hq(&lat, .5), hq(&lat, .9), hq(&lat, .99), hq(&lat, .999), (unsigned long long)lat.max, lat.n ? lat.sum / lat.n : 0);
  if (o_appack) printf(",\"app_acks\":%llu,\"app_acks_puback\":%llu,\"app_ack_errors\":%llu,\"no_message_id\":%llu", (unsigned long long)n_appack, (unsigned long long)n_appackd, (unsigned long long)n_appackerr, (unsigned long long)n_noid);
  printf(",\"disconnects\":%llu,\"reconnects\":%llu,\"resent\":%llu,\"max_delivery_gap_ms\":%.1f,\"last_disconnect_rc\":%d,\"last_reject_rc\":%d}\n", (unsigned long long)n_disc, (unsigned long long)n_reconn, (unsigned long long)n_resent, t_maxgap / 1e6, last_disc_rc, last_rej_rc); (void)alat;
  fflush(stdout); quitting = 1; each(bye);
  if (!o_clean && !o_keepsess && S) { /* delete the persistent sessions: reconnect with clean start, no subscription */
    quitting = 0; o_clean = 1; o_expiry = 0; o_cleaning = 1; ntodo = todopos = 0; for (int i = 0; i < S; i++) { subs[i].st = CLOSED; subs[i].everok = 0; } queue_conns(subs, S); loop_until(c_subs, 10); quitting = 1; each(bye); } return lost || n_disc ? 4 : 0;
}
