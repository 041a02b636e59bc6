"""The checks of `queuelake doctor`: each looks at one thing and says how it is and what mends it.

A check never changes anything and never raises for what it looks at: a surprise is an answer too.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from queuelake.cli.foreground import FILES_BESIDE_CONNECTIONS

if TYPE_CHECKING:
    from queuelake.settings import Settings

DISK_FREE_BYTES_FAIL = 64 * 1024 * 1024
DISK_FREE_BYTES_WARN = 1024 * 1024 * 1024
CERTIFICATE_DAYS_WARN = 30
HOT_MODULE = "queuelake.protocol.decoder"
NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs"),
        *("gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
        *("vboxsf", "virtiofs"),
    )
)
MEMORY_FILE_SYSTEMS = frozenset({"ramfs", "tmpfs"})
MOUNTS = Path("/proc/mounts")


class Check(NamedTuple):
    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    mend: str = ""


def machine_checks() -> Iterator[Check]:
    """What can be said without a configuration."""
    if importlib.util.find_spec("uvloop") is None:
        message = "uvloop is not installed; many small connections cost three times the CPU"
        yield Check("event loop", "warn", message, "pip install uvloop")
    else:
        yield Check("event loop", "ok", "uvloop is installed")
    spec = importlib.util.find_spec(HOT_MODULE)
    if spec is None or spec.origin is None or spec.origin.endswith(".py"):
        mend = "install a C compiler and Python's headers, then install queuelake again"
        yield Check("hot path", "warn", "interpreted: messages cost several times the CPU", mend)
    else:
        yield Check("hot path", "ok", "compiled")


def settings_checks(settings: Settings) -> Iterator[Check]:
    """What depends on the configuration."""
    data_dir = Path(settings.data_dir)
    yield _data_dir(data_dir)
    yield _file_system(data_dir)
    yield _disk(data_dir)
    yield _store(data_dir)
    yield from _ports(settings)
    yield _files(settings)
    yield from _access(settings)
    if settings.tls.certificate:
        yield _certificate(settings.tls.certificate)


def _existing(path: Path) -> Path:
    """The nearest directory on the way to `path` that is there."""
    path = Path(os.path.abspath(path))
    while not path.exists():
        path = path.parent
    return path


def _data_dir(path: Path) -> Check:
    mend = "change its owner, or choose another with --data-dir"
    place = _existing(path)
    if not place.is_dir():
        return Check("data directory", "fail", f"{place} is not a directory", mend)
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("data directory", "fail", f"{place} cannot be written by this user", mend)
    if not path.exists():
        return Check("data directory", "ok", f"{path} will be made at the first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        message = f"{path} has mode {mode:04o}: others can change what is in it"
        return Check("data directory", "warn", message, f"chmod 0700 {path}")
    return Check("data directory", "ok", f"{path} can be written")


def _file_system(path: Path) -> Check:
    try:
        kind = file_system(os.path.realpath(_existing(path)), MOUNTS.read_text(errors="replace"))
    except OSError:
        return Check("file system", "warn", "unknown: this system has no /proc/mounts", "")
    if kind in NETWORK_FILE_SYSTEMS:
        message = f"{path} is on {kind}: the store must not be on a network file system"
        return Check("file system", "fail", message, "choose a local disk with --data-dir")
    if kind in MEMORY_FILE_SYSTEMS:
        message = f"{path} is on {kind}: everything is lost when the machine stops"
        return Check("file system", "warn", message, "choose a disk with --data-dir")
    return Check("file system", "ok", kind)


def file_system(path: str, mounts: str) -> str:
    """The type of the file system that holds `path`, read from the text of /proc/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        # The kernel writes space, tab, newline and backslash as three octal digits.
        point = fields[1].encode("latin-1", "replace").decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later line covers an earlier one at the same place.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _disk(path: Path) -> Check:
    free = shutil.disk_usage(_existing(path)).free
    message = f"{free // 2**20} MiB free for {path}"
    mend = "free some space, or choose another disk with --data-dir"
    if free < DISK_FREE_BYTES_FAIL:
        least = f"; at least {DISK_FREE_BYTES_FAIL // 2**20} MiB are needed"
        return Check("disk", "fail", message + least, mend)
    if free < DISK_FREE_BYTES_WARN:
        return Check("disk", "warn", message, mend)
    return Check("disk", "ok", message)


def _store(data_dir: Path) -> Check:
    import lmdb

    from queuelake.errors import StoreFormatError
    from queuelake.storage.api import FORMAT_VERSION
    from queuelake.storage.check import problems
    from queuelake.storage.lmdb_store import read_only

    path = data_dir / "store"
    if not (path / "data.mdb").exists():
        return Check("store", "ok", "none yet; it is made at the first start")
    mend = "restore a backup, or move the directory away to start empty"
    try:
        with read_only(data_dir) as view:
            wrong = problems(view, sys.maxsize)
    except StoreFormatError as error:
        mend = "use the version of queuelake that wrote it, or another --data-dir"
        return Check("store", "fail", f"{path}: {error}", mend)
    except (lmdb.Error, OSError) as error:
        return Check("store", "fail", f"{path} does not open: {error}", mend)
    if wrong:
        return Check("store", "fail", f"{path} is damaged: {wrong[0]} ({len(wrong)} in all)", mend)
    owner = broker_pid(data_dir)
    state = f"a broker runs on it (process {owner})" if owner else "no broker runs on it"
    used = (path / "data.mdb").stat().st_size
    return Check("store", "ok", f"holds together, format {FORMAT_VERSION}, {used} bytes; {state}")


def broker_pid(data_dir: Path) -> int | None:
    """The process that has this data directory open, or None when nobody has."""
    try:
        with (data_dir / "broker.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read().strip() or 0) or None
    except (OSError, ValueError):
        pass
    return None


def _ports(settings: Settings) -> Iterator[Check]:
    from queuelake.config_rules import tcp_listeners

    owner = broker_pid(Path(settings.data_dir))
    listeners = [(key, one.bind, one.port) for key, one in tcp_listeners(settings)]
    if settings.http.enabled:
        listeners.append(("http", settings.http.bind, settings.http.port))
    if settings.http.enabled and settings.grpc.enabled:
        listeners.append(("grpc", settings.grpc.bind, settings.grpc.port))
    if settings.flight.enabled:
        listeners.append(("flight", settings.flight.bind, settings.flight.port))
    for key, bind, port in listeners:
        if port != 0:
            yield _port(key, bind, port, owner)


def _port(key: str, bind: str, port: int, owner: int | None) -> Check:
    name, place = f"port {key}", f"{bind}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            if owner is not None and listens(owner, port):
                return Check(name, "ok", f"{place} is used by this broker (process {owner})")
            mend = f"stop the other program, or choose another port with --set {key}.port=N"
            return Check(name, "fail", f"{place} is used by another program", mend)
        mend = f"choose another address or port with --set {key}.bind=ADDRESS, {key}.port=N"
        return Check(name, "fail", f"{place}: {error.strerror or error}", mend)
    return Check(name, "ok", f"{place} is free")


def listens(pid: int, port: int) -> bool:
    """Whether this process or one of its children listens on the TCP port; False when unknown."""
    sockets: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, state, inode = fields[1], fields[3], fields[9]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{inode}]")
    pids = {str(pid)}
    try:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            pids.update(children.read_text().split())
        for one in pids:
            for descriptor in Path(f"/proc/{one}/fd").iterdir():
                if os.readlink(descriptor) in sockets:
                    return True
    except OSError:
        pass
    return False


def _files(settings: Settings) -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, hard) if hard != resource.RLIM_INFINITY else hard
    need = settings.limits.connections_max + FILES_BESIDE_CONNECTIONS
    if limit == resource.RLIM_INFINITY or limit >= need:
        return Check("open files", "ok", f"the limit is {soft}, serve raises it up to {hard}")
    message = f"at most {limit}; limits.connections_max = {need - FILES_BESIDE_CONNECTIONS}"
    mend = (
        f"raise it (systemd: LimitNOFILE={need}; shell: ulimit -n {need}), or lower "
        f"limits.connections_max to {max(1, limit - FILES_BESIDE_CONNECTIONS)}"
    )
    return Check("open files", "warn", f"{message} needs {need}", mend)


def _access(settings: Settings) -> Iterator[Check]:
    from queuelake.broker.auth.passwords import PasswordFile
    from queuelake.broker.auth.scram import ScramFile
    from queuelake.errors import ConfigError
    from queuelake.settings import authentication_configured

    auth = settings.auth
    if not authentication_configured(settings):
        if auth.allow_anonymous is False:
            mend = "set auth.password_file (queuelake users add), auth.scram_file or auth.jwt"
            yield Check(
                "access", "warn", "no users and no anonymous clients: nobody can connect", mend
            )
        elif auth.allow_anonymous:
            mend = "set auth.password_file, and remove auth.allow_anonymous"
            yield Check("access", "warn", "everybody who reaches a port may do everything", mend)
        else:
            yield Check("access", "ok", "no users: anonymous clients of this machine only")
    yield from _rules(settings)
    readers = ((auth.password_file, PasswordFile), (auth.scram_file, ScramFile))
    for path, read in readers:
        if not path:
            continue
        try:
            users = len(read(path))
        except ConfigError as error:
            for mistake in error.mistakes:
                yield Check("access", "fail", mistake, "write the line again: queuelake users")
        else:
            yield Check("access", "ok", f"{path}: {users} users")


def _rules(settings: Settings) -> Iterator[Check]:
    """Those which the broker keeps; those of the configuration were checked when it was read."""
    from queuelake.broker.auth.rulefile import FILE_NAME, RuleFile
    from queuelake.errors import ConfigError

    data_dir = Path(settings.data_dir).expanduser()
    try:
        rules = RuleFile(data_dir).read()
    except ConfigError as error:
        for mistake in error.mistakes:
            yield Check("access", "fail", mistake, "the broker does not start: mend the file")
    else:
        if rules:
            yield Check("access", "ok", f"{data_dir / FILE_NAME}: {len(rules)} rules")


def _certificate(path: str) -> Check:
    from datetime import UTC, datetime

    try:
        from cryptography import x509

        ends = x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (ImportError, ValueError, OSError) as error:
        return Check("certificate", "warn", f"{path}: cannot read when it ends: {error}")
    days = (ends - datetime.now(UTC)).days
    mend = "renew it, then send SIGHUP to the broker"
    if days < 0:
        return Check("certificate", "fail", f"{path} ended on {ends:%Y-%m-%d}", mend)
    status: Literal["ok", "warn"] = "warn" if days < CERTIFICATE_DAYS_WARN else "ok"
    message = f"{path} is valid until {ends:%Y-%m-%d}, {days} days"
    return Check("certificate", status, message, mend if status == "warn" else "")
