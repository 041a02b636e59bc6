"""The rules of the repository that a machine can check.

Imports go one way, the pure folders stay pure, files and functions stay short, and nothing that
is committed depends on the machine it was written on.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "queuelake"
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# A folder (or module) imports only from lines before its own; those on one line are one unit,
# split by file length. A new folder or module gets its place here first.
LAYERS = (
    ("errors",),
    ("files",),
    ("toml_writing",),
    ("protocol",),
    ("expressions",),
    ("names",),
    ("placing",),
    ("v1",),
    (
        *("settings", "config", "config_layers", "config_rules", "config_types"),
        *("queue_settings", "queue_rules", "mq_settings", "mq_rules", "ecq_settings"),
        *("sdv_settings", "sdv_rules", "cluster_settings", "cluster_rules"),
    ),
    ("logs",),
    ("apikey",),
    ("tables",),
    ("flight",),
    (
        *(
            "control",
            "control_client",
            "control_queues",
            "control_mq",
            "control_ecq",
            "control_sdv",
        ),
        *("control_pipeline", "control_audit", "control_admin"),
        *("control_access", "control_backup", "control_cluster"),
    ),
    ("engine",),
    ("storage",),
    ("cluster",),
    ("broker",),
    ("admin",),
    ("export",),
    ("client",),
    ("pipeline",),
    ("cli",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# Never, whatever the order says: child processes and clients reach the broker over a socket.
FORBIDDEN = {
    "admin": {"broker"},
    "export": {"broker"},
    "client": {"broker", "admin"},
    "pipeline": {"broker", "admin"},
}
PURE = ("protocol", "expressions", "engine")
IMPURE_MODULES = {"asyncio", "time", "random", "os", "socket"}

GENERATED = ("_pb2.py", "_pb2_grpc.py")  # by scripts/protos
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith(GENERATED))


def each_source() -> pytest.MarkDecorator:
    names = [str(path.relative_to(PACKAGE)) for path in SOURCES]
    return pytest.mark.parametrize("path", SOURCES, ids=names)


@each_source()
def test_imports_go_one_way(path: Path) -> None:
    here = layer_of(path)
    if here == "__init__":
        assert not list(own_imports(path)), "queuelake/__init__.py imports nothing of its own"
        return
    assert here in RANK, f"{here!r} has no place in LAYERS"
    for line, there in own_imports(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {there!r}"
        if there in ("__init__", here):
            continue
        assert there in RANK, f"{where}, which has no place in LAYERS"
        above = RANK[there] < RANK[here] or there in LAYERS[RANK[here]]
        assert above, f"{where}, which is not above {here!r}"
        assert there not in FORBIDDEN.get(here, ()), f"{where}, which {here!r} may never do"


@pytest.mark.parametrize("folder", PURE)
def test_pure_folders_know_no_clock_no_dice_and_no_io(folder: str) -> None:
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for line, module in imports(path):
            top = module.partition(".")[0]
            assert top not in IMPURE_MODULES, f"{path.relative_to(ROOT)}:{line} imports {top}"


@each_source()
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    lines = len(text.splitlines())
    name = path.relative_to(ROOT)
    assert lines <= FILE_LINES_MAX, f"{name} has {lines} lines of at most {FILE_LINES_MAX}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            where = f"{name}:{node.lineno} {node.name}()"
            assert length <= FUNCTION_LINES_MAX, f"{where}: {length} of {FUNCTION_LINES_MAX} lines"


def test_nothing_depends_on_the_machine_it_was_written_on() -> None:
    # Written in pieces, so that this file does not find itself.
    foreign = re.compile(
        "|".join((r"\.\./" + "shared", "/work/" + "(?:main|shared)", "/root/" + r"\w"))
        + r"|\b(?:pypi|files\.pythonhosted|registry\.npmjs|registry\.yarnpkg)"
        + r"\.(?:org|com)\b"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if (match := foreign.search(line))
    ]
    assert not found, "\n".join(found)


def test_no_shared_objects_among_the_sources() -> None:
    """They would hide the source beside them from the interpreted run."""
    assert not list((ROOT / "src").rglob("*.so"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def own_imports(path: Path) -> Iterator[tuple[int, str]]:
    """The layers this file imports from, at any depth of the file."""
    for line, module in imports(path):
        parts = module.split(".")
        if parts[0] == "queuelake":
            yield line, parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every imported name as a full dotted path: `from a import b` gives `a.b`."""
    package = ["queuelake", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from queuelake import __version__` names no layer of its own.
                is_layer = module != "queuelake" or alias.name in RANK
                yield node.lineno, f"{module}.{alias.name}" if is_layer else module


def tracked_files() -> list[Path]:
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return [path for path in paths if path.is_file()]
