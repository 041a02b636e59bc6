"""Pipelines in a file: TOML, or SQL with TOML in its comments.

    [[pipeline]]
    name = "alerts"

    [pipeline.sources.readings]
    queue = "$queue/telemetry"
    schema = "vin STRING, celsius DOUBLE"

    [[pipeline.steps]]
    name = "hot"
    sql = "SELECT vin AS key, vin, celsius FROM readings WHERE celsius > 90"

    [pipeline.sink]
    queue = "$queue/alerts"

In a `.sql` file the lines which begin with `--!` are the TOML of a pipeline, beginning with its
name; the statements below it are its steps, named by `CREATE TEMPORARY VIEW name AS`, the last one
a plain query. Paths which are relative are so to the folder of the file. Every mistake is told,
each with the file, the pipeline and the key.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from queuelake.errors import ConfigError

MARK: Final = "--!"
NAME: Final = re.compile(r"[A-Za-z_]\w{0,99}")
VIEW: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\s+`?(\w+)`?\s+AS\s+(.*)", re.I | re.S
)
TRIGGER: Final = re.compile(r"\d+ (?:milliseconds?|seconds?|minutes?|hours?)")
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # file:, s3a:, hdfs:
AVAILABLE_NOW: Final = "available_now"


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where rows come from: exactly one of queue, table and path.

    `table` is a table of the lake. `schema` reads the payloads of a queue as JSON, and makes their
    fields columns beside those of the message.
    """

    queue: str = ""
    table: str = ""
    path: str = ""
    format: Literal["", "delta", "parquet", "csv", "json"] = ""
    schema: str = ""
    starting: str = "earliest"


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """A query over the sources and the steps before it."""

    sql: str
    name: str = ""


class Sink(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the last step goes: a queue, or Parquet files below a path."""

    queue: str = ""
    path: str = ""


class Pipeline(Struct, frozen=True, forbid_unknown_fields=True):
    """Stream: each run goes on where the last one ended. Batch: each run reads everything."""

    name: str
    sources: dict[str, Source]
    sink: Sink
    steps: list[Step] = []
    mode: Literal["stream", "batch"] = "stream"
    trigger: str = AVAILABLE_NOW
    checkpoint: str = ""


class PipelineFile(Struct, frozen=True, forbid_unknown_fields=True):
    pipeline: list[Pipeline]


def read_pipelines(path: Path) -> list[Pipeline]:
    """The pipelines of a file.

    Raises:
        ConfigError: one line for each mistake.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from None
    if path.suffix == ".toml":
        trees = _toml(path, text).get("pipeline", [])
    elif path.suffix == ".sql":
        trees = _sql(path, text)
    else:
        raise ConfigError([f"{path}: ends with {path.suffix!r}; allowed: .toml, .sql"])
    if not isinstance(trees, list) or not trees:
        raise ConfigError([f"{path}: has no pipeline; begin one with [[pipeline]]"])
    mistakes: list[str] = []
    pipelines: list[Pipeline] = []
    for number, tree in enumerate(trees, 1):
        name = tree.get("name") if isinstance(tree, dict) else None
        where = f"{path}: pipeline {name or number!r}"
        try:
            one = msgspec.convert(tree, Pipeline)
        except msgspec.ValidationError as error:
            mistakes.append(f"{where}: {_words(error)}")
            continue
        pipelines.append(_placed(one, path.parent))
        mistakes += [f"{where}: {mistake}" for mistake in _mistakes(one)]
    names = [one.name for one in pipelines]
    twice = {name for name in names if names.count(name) > 1}
    mistakes += [f"{path}: two pipelines have the name {name!r}" for name in twice]
    if mistakes:
        raise ConfigError(sorted(mistakes))
    return pipelines


def _placed(one: Pipeline, folder: Path) -> Pipeline:
    """With the folder of the file before each relative path."""

    def place(path: str) -> str:
        return str(folder.resolve() / path) if path and not SCHEME.match(path) else path

    replace = msgspec.structs.replace
    return replace(
        one,
        sources={name: replace(it, path=place(it.path)) for name, it in one.sources.items()},
        sink=replace(one.sink, path=place(one.sink.path)),
        checkpoint=place(one.checkpoint),
    )


def _toml(path: Path, text: str) -> dict[str, object]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: is no TOML: {error}"]) from None
    for key in tree:
        if key != "pipeline":
            raise ConfigError([f"{path}: {key}: unknown key; allowed: [[pipeline]]"])
    return tree


def _sql(path: Path, text: str) -> list[dict[str, object]]:
    """Blocks of `--!` lines, each with the statements below it."""
    blocks: list[tuple[list[str], list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(MARK):
            if not inside:
                blocks.append(([], []))
            blocks[-1][0].append(line.removeprefix(MARK))
            inside = True
        else:
            # A blank line does not end the head, a statement does.
            inside = inside and not line.strip()
            if blocks:
                blocks[-1][1].append(line)
            elif line.strip() and not line.lstrip().startswith("--"):
                raise ConfigError([f'{path}: SQL before the first {MARK} name = "..."'])
    trees: list[dict[str, object]] = []
    for head, body in blocks:
        try:
            tree: dict[str, object] = tomllib.loads("\n".join(head))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError([f"{path}: the {MARK} lines are no TOML: {error}"]) from None
        tree["steps"] = [_step(text) for text in statements("\n".join(body))]
        trees.append(tree)
    return trees


def _step(text: str) -> dict[str, str]:
    match = VIEW.fullmatch(text)
    return {"name": match[1], "sql": match[2]} if match else {"sql": text}


def statements(text: str) -> list[str]:
    """Statements between semicolons, without comments; quotes may hold either."""
    pieces: list[str] = [""]
    token = re.compile(
        r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|.""", re.S
    )
    for found in token.findall(text):
        if found == ";":
            pieces.append("")
        elif not found.startswith(("--", "/*")):
            pieces[-1] += found
    return [piece.strip() for piece in pieces if piece.strip()]


def _mistakes(one: Pipeline) -> list[str]:
    """What the types do not say."""
    mistakes: list[str] = []
    if not NAME.fullmatch(one.name):
        mistakes.append(f"name: {one.name!r}; allowed: letters, digits and _")
    if not one.sources:
        mistakes.append("sources: there is none")
    for name, source in one.sources.items():
        mistakes += _source_mistakes(name, source, one)
    known = set(one.sources)
    for number, step in enumerate(one.steps, 1):
        last = number == len(one.steps)
        if not step.name and not last:
            mistakes.append(f"steps[{number}].name: is missing; only the last step may do without")
        elif step.name and not NAME.fullmatch(step.name):
            mistakes.append(f"steps[{number}].name: {step.name!r}; allowed: letters, digits and _")
        elif step.name in known:
            mistakes.append(f"steps[{number}].name: {step.name!r} is there already")
        known.add(step.name)
    if not one.steps and len(one.sources) > 1:
        mistakes.append("steps: are missing; which of the sources is meant?")
    if bool(one.sink.queue) == bool(one.sink.path):
        mistakes.append("sink: give one of queue, path")
    if one.trigger != AVAILABLE_NOW and not TRIGGER.fullmatch(one.trigger):
        allowed = f"allowed: {AVAILABLE_NOW!r}, or an interval such as '10 seconds'"
        mistakes.append(f"trigger: {one.trigger!r}; {allowed}")
    if one.mode == "stream" and not any(source.queue for source in one.sources.values()):
        mistakes.append("mode: 'stream' needs a queue among the sources; or set mode = 'batch'")
    return mistakes


def _source_mistakes(name: str, source: Source, one: Pipeline) -> list[str]:
    where = f"sources.{name}"
    mistakes: list[str] = []
    if not NAME.fullmatch(name):
        mistakes.append(f"{where}: the name; allowed: letters, digits and _")
    if [bool(source.queue), bool(source.table), bool(source.path)].count(True) != 1:
        mistakes.append(f"{where}: give one of queue, table, path")
    if source.schema and not source.queue:
        mistakes.append(f"{where}.schema: is only for payloads of a queue")
    if source.format and not source.path:
        mistakes.append(f"{where}.format: is only for a path")
    return mistakes


def _words(error: msgspec.ValidationError) -> str:
    """`sources.readings.queue: Expected str, got int` out of msgspec's path."""
    words, _, place = str(error).partition(" - at `$")
    path = re.sub(r"\[\.\.\.\]", "", place.rstrip("`")).lstrip(".")
    unknown = re.match(r"Object contains unknown field `(.+)`", words)
    if unknown:
        return f"{f'{path}.' if path else ''}{unknown[1]}: unknown key"
    missing = re.match(r"Object missing required field `(.+)`", words)
    if missing:
        return f"{f'{path}.' if path else ''}{missing[1]}: is missing"
    return f"{path}: {words}" if path else words
