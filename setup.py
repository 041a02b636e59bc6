"""Build hook: the hot path as one mypyc group, when this machine can compile C.

The list below is the only place that says what is hot. Caller and callee belong in the same
group, because a compiled function under an interpreted caller gains nothing. Without a compiler,
or with QUEUELAKE_PURE=1, the same sources are installed as they are. QUEUELAKE_OPTIMIZE=1 takes a
third of the time to build, for tests; what users run has everything the compiler can do.
"""

import os
import sys
import tempfile
from glob import glob
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

HOT = (
    "src/queuelake/names.py",
    "src/queuelake/placing.py",
    "src/queuelake/protocol/*.py",
    "src/queuelake/engine/[!_s]*.py",
    "src/queuelake/engine/settled.py",
    "src/queuelake/engine/settling.py",
    "src/queuelake/engine/state.py",
    "src/queuelake/engine/kinds/*.py",
    "src/queuelake/engine/policy/*.py",
    "src/queuelake/engine/quorum/[!_s]*.py",
    "src/queuelake/engine/quorum/sending.py",
    "src/queuelake/engine/quorum/service.py",
    "src/queuelake/engine/quorum/sessions.py",
    "src/queuelake/engine/quorum/settling.py",
    "src/queuelake/engine/quorum/state.py",
    "src/queuelake/storage/chunk.py",
    "src/queuelake/storage/delayed.py",
    "src/queuelake/storage/ecq_tables.py",
    "src/queuelake/storage/lmdb_store.py",
    "src/queuelake/storage/lmdb_transaction.py",
    "src/queuelake/storage/log_tables.py",
    "src/queuelake/storage/pipeline_tables.py",
    "src/queuelake/storage/queue_rows.py",
    "src/queuelake/storage/queue_space.py",
    "src/queuelake/storage/queue_tables.py",
    "src/queuelake/storage/sdv_tables.py",
    "src/queuelake/storage/stage_tables.py",
    "src/queuelake/broker/aliases.py",
    "src/queuelake/broker/auth/acl.py",
    "src/queuelake/broker/auth/filters.py",
    "src/queuelake/broker/clock.py",
    "src/queuelake/broker/company.py",
    "src/queuelake/broker/connection.py",
    "src/queuelake/broker/deadlines.py",
    "src/queuelake/broker/deliveries.py",
    "src/queuelake/broker/delivery.py",
    "src/queuelake/broker/fanout/awake.py",
    "src/queuelake/broker/fanout/burial.py",
    "src/queuelake/broker/fanout/dispatch.py",
    "src/queuelake/broker/fanout/dropping.py",
    "src/queuelake/broker/fanout/garbage.py",
    "src/queuelake/broker/fanout/events.py",
    "src/queuelake/broker/fanout/held.py",
    "src/queuelake/broker/fanout/heartbeat.py",
    "src/queuelake/broker/fanout/job.py",
    "src/queuelake/broker/fanout/metrics.py",
    "src/queuelake/broker/fanout/payloads.py",
    "src/queuelake/broker/fanout/recent.py",
    "src/queuelake/broker/fanout/register.py",
    "src/queuelake/broker/fanout/service.py",
    "src/queuelake/broker/fanout/storing.py",
    "src/queuelake/broker/fanout/topics.py",
    "src/queuelake/broker/fanout/vehicles.py",
    "src/queuelake/broker/ecq/counters.py",
    "src/queuelake/broker/ecq/garbage.py",
    "src/queuelake/broker/ecq/events.py",
    "src/queuelake/broker/ecq/owners.py",
    "src/queuelake/broker/ecq/publishing.py",
    "src/queuelake/broker/ecq/reader.py",
    "src/queuelake/broker/ecq/service.py",
    "src/queuelake/broker/ecq/topics.py",
    "src/queuelake/broker/ecq/writing.py",
    "src/queuelake/broker/farewell.py",
    "src/queuelake/broker/front/forwarded.py",
    "src/queuelake/broker/front/joins.py",
    "src/queuelake/broker/front/server_packets.py",
    "src/queuelake/broker/front/traffic.py",
    "src/queuelake/broker/group.py",
    "src/queuelake/broker/inbound.py",
    "src/queuelake/broker/limits.py",
    "src/queuelake/broker/line.py",
    "src/queuelake/broker/message_queues/definition.py",
    "src/queuelake/broker/message_queues/host.py",
    "src/queuelake/broker/message_queues/latest.py",
    "src/queuelake/broker/message_queues/metrics.py",
    "src/queuelake/broker/message_queues/subscriber.py",
    "src/queuelake/broker/metrics.py",
    "src/queuelake/broker/pace.py",
    "src/queuelake/broker/packet_ids.py",
    "src/queuelake/broker/participant.py",
    "src/queuelake/broker/pipeline/events.py",
    "src/queuelake/broker/pipeline/write_log.py",
    "src/queuelake/broker/queues/binding.py",
    "src/queuelake/broker/queues/delivered_ids.py",
    "src/queuelake/broker/queues/durable.py",
    "src/queuelake/broker/queues/host.py",
    "src/queuelake/broker/queues/hosts.py",
    "src/queuelake/broker/queues/incoming.py",
    "src/queuelake/broker/queues/publishing.py",
    "src/queuelake/broker/queues/registry.py",
    "src/queuelake/broker/queues/rows.py",
    "src/queuelake/broker/queues/subscriber.py",
    "src/queuelake/broker/queues/tail.py",
    "src/queuelake/broker/queues/target.py",
    "src/queuelake/broker/quorum/burying.py",
    "src/queuelake/broker/quorum/chunks.py",
    "src/queuelake/broker/quorum/delivering.py",
    "src/queuelake/broker/quorum/host.py",
    "src/queuelake/broker/quorum/publishing.py",
    "src/queuelake/broker/quorum/rows.py",
    "src/queuelake/broker/quorum/subscriber.py",
    "src/queuelake/broker/refusing.py",
    "src/queuelake/broker/retained.py",
    "src/queuelake/broker/router.py",
    "src/queuelake/broker/runner.py",
    "src/queuelake/broker/session.py",
    "src/queuelake/broker/terms.py",
    "src/queuelake/broker/throttle.py",
    "src/queuelake/broker/topic_service.py",
)


# A wheel build runs this file three times; only these commands need the extensions.
BUILD_COMMANDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def hot_extensions() -> list[Extension]:
    sources = sorted({path for pattern in HOT for path in glob(pattern)})
    if not sources or os.environ.get("QUEUELAKE_PURE") == "1":
        return []
    if BUILD_COMMANDS.isdisjoint(sys.argv):
        return []
    if not can_compile():
        print(
            "warning: no working C compiler with Python headers; "
            "queuelake is installed interpreted, several times slower",
            file=sys.stderr,
        )
        return []
    from mypyc.build import mypycify

    # The strict check is the job of scripts/check. Here only errors in hot files count, and a
    # build environment without the runtime dependencies must do.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    extensions: list[Extension] = mypycify(
        [*options, *sources],
        opt_level=os.environ.get("QUEUELAKE_OPTIMIZE", "3"),
        debug_level="0",
        multi_file=False,
        group_name="queuelake",
    )
    for extension in extensions:
        # Calls between our own functions need not go through the linker's table. Nobody reads
        # warnings about generated code, and finding them takes longer than compiling it.
        flags = ["-fvisibility=hidden", "-Wno-all"] if os.name == "posix" else []
        extension.extra_compile_args = [*extension.extra_compile_args, *flags]
    return extensions


def can_compile() -> bool:
    """Build an empty extension: asks for compiler, linker and Python.h at once."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(
            "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"
        )
        command = build_ext(
            Distribution({"ext_modules": [Extension("probe", [str(source)])], "script_name": ""})
        )
        command.build_lib = command.build_temp = folder
        # A failing compiler complains on our descriptors; the one line of the caller is enough.
        quiet = os.open(os.devnull, os.O_WRONLY)
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            command.ensure_finalized()
            command.run()
        except Exception:
            return False
        finally:
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for descriptor in (quiet, *kept):
                os.close(descriptor)
    return True


if __name__ == "__main__":
    setup(ext_modules=hot_extensions())
