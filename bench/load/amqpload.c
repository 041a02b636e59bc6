/* amqpload - the RabbitMQ side of scripts/bench: publishers and consumers of one quorum queue.
 *
 *   cc -O2 -Wall -o amqpload amqpload.c        (Linux only: /proc)
 *
 * AMQP 0-9-1 with publisher confirms (a window per publisher) and one ack for each delivery. Every
 * connection is opened with blocking calls; then all of them are served by one poll loop. A payload
 * carries (publisher, sequence, send time), so the report has rate, latency, lost and duplicate
 * counts beside the CPU of the broker's process tree. The report is one JSON object with the names
 * mqttload uses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, HEADER = 20, OUT_MAX = 1 << 20, IN_MAX = 1 << 20, LATENCIES_MAX = 1 << 20, PIDS_MAX = 16 };
enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_END = 0xCE };
#define METHOD(class, method) ((uint32_t)(class) << 16 | (method))
enum {
  START = METHOD(10, 10), START_OK = METHOD(10, 11), TUNE = METHOD(10, 30), TUNE_OK = METHOD(10, 31),
  OPEN = METHOD(10, 40), OPEN_OK = METHOD(10, 41), CLOSE = METHOD(10, 50),
  CHANNEL_OPEN = METHOD(20, 10), CHANNEL_OPEN_OK = METHOD(20, 11), CHANNEL_CLOSE = METHOD(20, 40),
  DECLARE = METHOD(50, 10), DECLARE_OK = METHOD(50, 11), DELETE = METHOD(50, 40), DELETE_OK = METHOD(50, 41),
  QOS = METHOD(60, 10), QOS_OK = METHOD(60, 11), CONSUME = METHOD(60, 20), CONSUME_OK = METHOD(60, 21),
  PUBLISH = METHOD(60, 40), DELIVER = METHOD(60, 60), ACK = METHOD(60, 80), NACK = METHOD(60, 120),
  SELECT = METHOD(85, 10), SELECT_OK = METHOD(85, 11),
};

typedef struct {
  int fd, is_publisher, index;
  uint8_t *out, *in;
  size_t out_len, in_len;
  uint64_t sent, quota, confirmed; /* publisher: tags are 1..sent, all up to `confirmed` are confirmed */
  uint8_t *seen;                   /* publisher: a bit for each sequence which was delivered */
  uint64_t seen_max;
  uint64_t tag;                    /* consumer: of the delivery whose body comes next */
} Connection;

static int port = 5672, publishers = 1, consumers = 1, size = 256, window = 100, prefetch = 0, declare_port = 0;
static int broker_pids[PIDS_MAX], broker_pid_count = 0;
static double duration_s = 0, rate = 0;
static uint64_t run_start_ns;
static uint64_t count = 100000, lag_max = 0;
static const char *label = "";
static char queue[64];
static Connection all[CONNECTIONS_MAX];
static uint8_t *payload;
static uint64_t published, confirmed, delivered, unique_count, duplicates, refused, last_delivery_ns;
static uint32_t latencies_us[LATENCIES_MAX]; /* the newest ones, as a ring */
static uint64_t latencies;

static void fail(const char *what, const char *why) {
  printf("{\"label\":\"%s\",\"error\":\"%s: %s\"}\n", label, what, why);
  exit(2);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void put(Connection *c, const void *data, size_t n) {
  if (c->out_len + n > OUT_MAX) fail("output", "the buffer is full");
  memcpy(c->out + c->out_len, data, n);
  c->out_len += n;
}
static void put8(Connection *c, uint8_t v) { put(c, &v, 1); }
static void put16(Connection *c, uint16_t v) { v = htons(v); put(c, &v, 2); }
static void put32(Connection *c, uint32_t v) { v = htonl(v); put(c, &v, 4); }
static void put64(Connection *c, uint64_t v) { put32(c, v >> 32); put32(c, (uint32_t)v); }
static void put_short(Connection *c, const char *s) { put8(c, strlen(s)); put(c, s, strlen(s)); }

static size_t begin(Connection *c, int type, int channel) {
  put8(c, type);
  put16(c, channel);
  put32(c, 0);
  return c->out_len;
}
static void end(Connection *c, size_t start) {
  uint32_t length = htonl((uint32_t)(c->out_len - start));
  memcpy(c->out + start - 4, &length, 4);
  put8(c, FRAME_END);
}
static size_t begin_method(Connection *c, int channel, uint32_t method) {
  size_t start = begin(c, FRAME_METHOD, channel);
  put32(c, method);
  return start;
}

static void flush(Connection *c) {
  size_t done = 0;
  while (done < c->out_len) {
    ssize_t n = send(c->fd, c->out + done, c->out_len - done, MSG_NOSIGNAL);
    if (n > 0) done += n;
    else if (errno == EAGAIN) break;
    else if (errno != EINTR) fail("send", strerror(errno));
  }
  memmove(c->out, c->out + done, c->out_len - done);
  c->out_len -= done;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static void receive(Connection *c) {
  ssize_t n = recv(c->fd, c->in + c->in_len, IN_MAX - c->in_len, 0);
  if (n == 0) fail("recv", "closed by the broker");
  if (n < 0 && errno != EAGAIN && errno != EINTR) fail("recv", strerror(errno));
  if (n > 0) c->in_len += n;
}

/* The length of the first whole frame, or 0. */
static size_t frame_length(const uint8_t *p, size_t n) {
  if (n < 8) return 0;
  size_t length = 8 + (size_t)get32(p + 3);
  return n < length ? 0 : length;
}

static void check_close(const uint8_t *p) {
  uint32_t method = get32(p + 7);
  if (p[0] != FRAME_METHOD || (method != CLOSE && method != CHANNEL_CLOSE)) return;
  char text[256];
  int length = p[13];
  snprintf(text, sizeof text, "%u %.*s", p[11] << 8 | p[12], length, (const char *)p + 14);
  fail("closed by the broker", text);
}

/* Sends what is written and waits for this method: only before the run, where nothing else comes. */
static void expect(Connection *c, uint32_t method) {
  size_t length;
  flush(c);
  while (!(length = frame_length(c->in, c->in_len))) receive(c);
  check_close(c->in);
  if (c->in[0] != FRAME_METHOD || get32(c->in + 7) != method) fail("handshake", "unexpected frame");
  memmove(c->in, c->in + length, c->in_len - length);
  c->in_len -= length;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static void open_connection(Connection *c, int to_port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to_port)};
  int one = 1;
  size_t at;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  c->out = malloc(OUT_MAX);
  c->in = malloc(IN_MAX);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect", strerror(errno));
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  put(c, "AMQP\0\0\11\1", 8);
  expect(c, START);
  at = begin_method(c, 0, START_OK);
  put32(c, 0);
  put_short(c, "PLAIN");
  put32(c, 12);
  put(c, "\0guest\0guest", 12);
  put_short(c, "en_US");
  end(c, at);
  expect(c, TUNE);
  at = begin_method(c, 0, TUNE_OK);
  put16(c, 1);
  put32(c, 131072);
  put16(c, 0);
  end(c, at);
  at = begin_method(c, 0, OPEN);
  put_short(c, "/");
  put16(c, 0);
  end(c, at);
  expect(c, OPEN_OK);
  at = begin_method(c, 1, CHANNEL_OPEN);
  put8(c, 0);
  end(c, at);
  expect(c, CHANNEL_OPEN_OK);
}

static void declare_queue(Connection *c) {
  static const char type[] = "\14x-queue-typeS\0\0\0\6quorum"
                             "\33x-quorum-initial-group-sizeI\0\0\0\3"; /* of the nodes there are */
  size_t at = begin_method(c, 1, DECLARE);
  put16(c, 0);
  put_short(c, queue);
  put8(c, 2); /* durable */
  put32(c, sizeof type - 1);
  put(c, type, sizeof type - 1);
  end(c, at);
  expect(c, DECLARE_OK);
}

static void open_publisher(Connection *c) {
  size_t at;
  open_connection(c, port);
  at = begin_method(c, 1, SELECT);
  put8(c, 0);
  end(c, at);
  expect(c, SELECT_OK);
}

static void open_consumer(Connection *c) {
  size_t at;
  open_connection(c, port);
  if (prefetch) {
    at = begin_method(c, 1, QOS);
    put32(c, 0);
    put16(c, prefetch);
    put8(c, 0);
    end(c, at);
    expect(c, QOS_OK);
  }
  at = begin_method(c, 1, CONSUME);
  put16(c, 0);
  put_short(c, queue);
  put_short(c, "");
  put8(c, 0);
  put32(c, 0);
  end(c, at);
  expect(c, CONSUME_OK);
}

static void delete_queue(Connection *c) {
  size_t at = begin_method(c, 1, DELETE);
  put16(c, 0);
  put_short(c, queue);
  put8(c, 0);
  end(c, at);
  expect(c, DELETE_OK);
}

/* --- The run ---------------------------------------------------------------------------------- */

static void publish_some(Connection *c) {
  while (c->sent < c->quota && c->sent - c->confirmed < (uint64_t)window && c->out_len < OUT_MAX / 2) {
    if (lag_max && published > unique_count + lag_max) break;
    if (rate > 0 && published >= (now_ns() - run_start_ns) / 1e9 * rate) break;
    uint64_t sent_ns = now_ns();
    size_t at = begin_method(c, 1, PUBLISH);
    put16(c, 0);
    put_short(c, "");
    put_short(c, queue);
    put8(c, 0);
    end(c, at);
    at = begin(c, FRAME_HEADER, 1);
    put16(c, 60);
    put16(c, 0);
    put64(c, size);
    put16(c, 0x1000); /* only the delivery mode: persistent */
    put8(c, 2);
    end(c, at);
    memcpy(payload, &c->index, 4);
    memcpy(payload + 4, &c->sent, 8);
    memcpy(payload + 12, &sent_ns, 8);
    at = begin(c, FRAME_BODY, 1);
    put(c, payload, size);
    end(c, at);
    c->sent++;
    published++;
  }
}

/* A queue may confirm out of order; RabbitMQ does not for one queue, and the window counts on it. */
static void on_confirm(Connection *c, const uint8_t *arguments, int is_nack) {
  uint64_t tag = get64(arguments), first = arguments[8] & 1 ? c->confirmed + 1 : tag;
  if (is_nack) refused += tag - first + 1;
  confirmed += tag - first + 1;
  c->confirmed += tag - first + 1;
}

static void on_body(Connection *c, const uint8_t *body) {
  uint32_t from;
  uint64_t sequence, sent_ns, now = now_ns();
  size_t at;
  memcpy(&from, body, 4);
  memcpy(&sequence, body + 4, 8);
  memcpy(&sent_ns, body + 12, 8);
  delivered++;
  last_delivery_ns = now;
  latencies_us[latencies++ % LATENCIES_MAX] = (now - sent_ns) / 1000;
  Connection *source = &all[from];
  if (sequence >= source->seen_max) {
    uint64_t max = (sequence | 0xFFFF) + 1;
    source->seen = realloc(source->seen, max / 8);
    memset(source->seen + source->seen_max / 8, 0, (max - source->seen_max) / 8);
    source->seen_max = max;
  }
  if (source->seen[sequence / 8] >> sequence % 8 & 1) duplicates++;
  else unique_count++;
  source->seen[sequence / 8] |= 1 << sequence % 8;
  at = begin_method(c, 1, ACK);
  put64(c, c->tag);
  put8(c, 0);
  end(c, at);
}

static void on_frames(Connection *c) {
  size_t done = 0, length;
  while ((length = frame_length(c->in + done, c->in_len - done))) {
    const uint8_t *frame = c->in + done, *arguments = frame + 11;
    check_close(frame);
    if (frame[0] == FRAME_METHOD && get32(frame + 7) == DELIVER) c->tag = get64(arguments + 1 + arguments[0]);
    else if (frame[0] == FRAME_METHOD && get32(frame + 7) == ACK) on_confirm(c, arguments, 0);
    else if (frame[0] == FRAME_METHOD && get32(frame + 7) == NACK) on_confirm(c, arguments, 1);
    else if (frame[0] == FRAME_BODY) on_body(c, frame + 7);
    done += length;
  }
  memmove(c->in, c->in + done, c->in_len - done);
  c->in_len -= done;
}

static int is_finished(void) {
  for (int i = 0; i < publishers; i++)
    if (all[i].sent < all[i].quota) return 0;
  return confirmed == published && (!consumers || unique_count + refused >= published);
}

static void run(uint64_t start_ns) {
  struct pollfd polled[CONNECTIONS_MAX];
  int n = publishers + consumers;
  uint64_t progress = 0, progress_ns = start_ns;
  while (!is_finished()) {
    uint64_t now = now_ns();
    if (duration_s > 0 && now - start_ns > duration_s * 1e9)
      for (int i = 0; i < publishers; i++) all[i].quota = all[i].sent;
    if (confirmed + delivered != progress) progress = confirmed + delivered, progress_ns = now;
    if (now - progress_ns > 10000000000u) return; /* what is missing is reported as lost */
    for (int i = 0; i < n; i++) {
      if (all[i].is_publisher) publish_some(&all[i]);
      if (all[i].out_len) flush(&all[i]);
      polled[i] = (struct pollfd){.fd = all[i].fd, .events = POLLIN | (all[i].out_len ? POLLOUT : 0)};
    }
    poll(polled, n, rate > 0 ? 1 : 20);
    for (int i = 0; i < n; i++)
      if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) {
        receive(&all[i]);
        on_frames(&all[i]);
      }
  }
}

/* --- The report ------------------------------------------------------------------------------- */

static int stat_of(int pid, int *parent, double *cpu_s) {
  char path[64], text[1024], *after;
  unsigned long user, system;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = 0;
  if (!(after = strrchr(text, ')'))) return 0;
  static const char format[] = "%*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu";
  if (sscanf(after + 2, format, parent, &user, &system) != 3) return 0;
  *cpu_s = (double)(user + system) / sysconf(_SC_CLK_TCK);
  return 1;
}

static double tree_cpu_s(void) {
  static int pids[4096], parents[4096], inside[4096];
  static double cpus_s[4096];
  int n = 0, members = 0;
  double total_s = 0;
  struct dirent *entry;
  DIR *directory = opendir("/proc");
  if (!broker_pid_count || !directory) return 0;
  while ((entry = readdir(directory)) && n < 4096)
    if (isdigit(entry->d_name[0]) && stat_of(atoi(entry->d_name), &parents[n], &cpus_s[n]))
      pids[n++] = atoi(entry->d_name);
  closedir(directory);
  for (int i = 0; i < broker_pid_count; i++) inside[members++] = broker_pids[i];
  for (int m = 0; m < members; m++)
    for (int i = 0; i < n; i++) {
      if (pids[i] == inside[m]) total_s += cpus_s[i];
      if (parents[i] == inside[m]) inside[members++] = pids[i];
    }
  return total_s;
}

static int ascending(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void report(double cpu_s, double elapsed_s) {
  uint64_t n = latencies < LATENCIES_MAX ? latencies : LATENCIES_MAX;
  uint64_t accepted = confirmed - refused, per = published ? published : 1;
  uint64_t lost = consumers && accepted > unique_count ? accepted - unique_count : 0;
  qsort(latencies_us, n, 4, ascending);
  printf("{\"label\":\"%s\",\"P\":%d,\"S\":%d,\"size\":%d", label, publishers, consumers, size);
  printf(",\"window\":%d,\"prefetch\":%d", window, prefetch);
  printf(",\"msgs_per_s\":%.0f,\"elapsed_s\":%.3f", (consumers ? unique_count : confirmed) / elapsed_s, elapsed_s);
  printf(",\"broker\":{\"cpu_s\":%.2f,\"cpu_pct\":%.1f", cpu_s, cpu_s / elapsed_s * 100);
  printf(",\"us_per_msg\":%.2f}", cpu_s * 1e6 / per);
  printf(",\"published\":%" PRIu64 ",\"acked\":%" PRIu64 ",\"rejected\":%" PRIu64, published, accepted, refused);
  printf(",\"delivered\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"dup\":%" PRIu64, delivered, lost, duplicates);
  if (n) {
    uint32_t *sorted = latencies_us;
    printf(",\"lat_us\":{\"p50\":%u,\"p99\":%u,\"max\":%u}", sorted[n / 2], sorted[n * 99 / 100], sorted[n - 1]);
  }
  printf("}\n");
}

static void usage(void) {
  fputs("amqpload --port N --broker-pid PID -P publishers -S consumers --count N | --duration S\n"
        "         --size B --window W (unconfirmed per publisher) --prefetch N (0: no limit) --label TEXT\n"
        "         --max-lag N: publishers pause while published - delivered > N\n"
        "         --rate N: messages a second of all publishers (default: as fast as they may)\n"
        "         --declare-port N: where the queue is declared, whose node then leads it (default: --port)\n"
        "         --broker-pid may be repeated\n", stderr);
  exit(1);
}

static void read_options(int argc, char **argv) {
  enum { PORT = 256, PID, COUNT, DURATION, SIZE, WINDOW, PREFETCH, LABEL, MAX_LAG, RATE, DECLARE_PORT };
  static const struct option names[] = {
    {"port", 1, 0, PORT}, {"broker-pid", 1, 0, PID}, {"count", 1, 0, COUNT}, {"duration", 1, 0, DURATION},
    {"size", 1, 0, SIZE}, {"window", 1, 0, WINDOW}, {"prefetch", 1, 0, PREFETCH}, {"label", 1, 0, LABEL},
    {"max-lag", 1, 0, MAX_LAG}, {"rate", 1, 0, RATE}, {"declare-port", 1, 0, DECLARE_PORT}, {0, 0, 0, 0}};
  int option;
  while ((option = getopt_long(argc, argv, "P:S:", names, NULL)) != -1) switch (option) {
    case 'P': publishers = atoi(optarg); break;
    case 'S': consumers = atoi(optarg); break;
    case PORT: port = atoi(optarg); break;
    case PID: if (broker_pid_count < PIDS_MAX) broker_pids[broker_pid_count++] = atoi(optarg); break;
    case COUNT: count = strtoull(optarg, 0, 10); break;
    case DURATION: duration_s = atof(optarg); break;
    case SIZE: size = atoi(optarg); break;
    case WINDOW: window = atoi(optarg); break;
    case PREFETCH: prefetch = atoi(optarg); break;
    case MAX_LAG: lag_max = strtoull(optarg, 0, 10); break;
    case RATE: rate = atof(optarg); break;
    case DECLARE_PORT: declare_port = atoi(optarg); break;
    case LABEL: label = optarg; break;
    default: usage();
  }
  if (publishers < 1 || consumers < 0 || publishers + consumers > CONNECTIONS_MAX || size < HEADER) usage();
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  snprintf(queue, sizeof queue, "bench-%d-%llx", getpid(), (unsigned long long)now_ns());
  payload = malloc(size);
  memset(payload, 'x', size);
  Connection declarer = {0};
  open_connection(&declarer, declare_port ? declare_port : port);
  declare_queue(&declarer);
  for (int i = 0; i < publishers + consumers; i++) {
    Connection *c = &all[i];
    c->index = i;
    c->is_publisher = i < publishers;
    c->quota = duration_s > 0 ? UINT64_MAX : count / publishers + ((uint64_t)i < count % publishers);
    if (c->is_publisher) open_publisher(c);
    else open_consumer(c);
  }
  for (int i = 0; i < publishers + consumers; i++) fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
  double before_s = tree_cpu_s();
  uint64_t start_ns = run_start_ns = now_ns();
  run(start_ns);
  double cpu_s = tree_cpu_s() - before_s;
  uint64_t end_ns = last_delivery_ns ? last_delivery_ns : now_ns();
  report(cpu_s, (end_ns - start_ns) / 1e9);
  delete_queue(&declarer);
  return 0;
}
