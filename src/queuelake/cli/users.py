"""`queuelake users`: password files in the format of mosquitto_passwd, and SCRAM files beside them.

A file is rewritten as a whole: a temporary file with mode 0600 in the same directory, synced, then
renamed over the old one, so that a broker reads either the old users or the new ones. Lines of
other users and comments stay as they are. Two commands at once wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from queuelake.errors import RefusedError

EPILOG = """
Examples:

  queuelake users add users.txt alice              asks for the password
  echo "$PW" | queuelake users add users.txt bob --password-stdin
  queuelake users passwd users.txt alice --scram scram.txt
  queuelake users rm users.txt bob
  queuelake users list users.txt

Then: queuelake serve --set auth.password_file=users.txt. A running broker reads the file again
on SIGHUP.
"""

app = typer.Typer(
    help="Add, change and remove users in a password file.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

File = Annotated[str, typer.Argument(metavar="FILE", help="The password file; made when missing.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user name.")]
Scram = Annotated[
    str | None,
    typer.Option("--scram", metavar="FILE", help="Also write SCRAM-SHA-256 credentials here."),
]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


@app.command()
def add(file: File, name: Name, scram: Scram = None, password_stdin: FromStdin = False) -> None:
    """Add a user; the password is asked for, or read with --password-stdin."""
    _check_name(name)
    if name in user_names(_read_lines(Path(file))):
        raise RefusedError(f"user {name!r} is already in {file}; use: queuelake users passwd")
    _set_password(Path(file), name, scram, _ask_password(password_stdin), new=True)
    print(f"added {name!r} to {file}")


@app.command()
def passwd(file: File, name: Name, scram: Scram = None, password_stdin: FromStdin = False) -> None:
    """Change the password of a user."""
    _check_present(Path(file), name)
    _set_password(Path(file), name, scram, _ask_password(password_stdin), new=False)
    print(f"changed the password of {name!r} in {file}")


@app.command()
def rm(file: File, name: Name, scram: Scram = None) -> None:
    """Remove a user; with --scram also from that file."""
    _check_present(Path(file), name)
    _replace_line(Path(file), name, None)
    if scram is not None and Path(scram).exists():
        from queuelake.broker.auth.scram import scram_line

        # The file holds names as SASLprep leaves them, which may not be as they were typed.
        _replace_line(Path(scram), scram_line(name, "-").partition(":")[0], None)
    print(f"removed {name!r} from {file}")


@app.command("list")
def list_users(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False
) -> None:
    """Print the user names, one on each line."""
    if not Path(file).exists():
        raise RefusedError(f"{file}: there is no such file")
    names = user_names(_read_lines(Path(file)))
    if as_json:
        import json

        print(json.dumps(names))
    else:
        for name in names:
            print(name)


def user_names(lines: list[str]) -> list[str]:
    """The names in a password file, in its order."""
    entries = (line.strip() for line in lines)
    users = (line for line in entries if ":" in line and not line.startswith("#"))
    return [line.partition(":")[0].strip() for line in users]


def _set_password(path: Path, name: str, scram: str | None, password: str, *, new: bool) -> None:
    from queuelake.broker.auth.passwords import hash_password

    # Both lines are made before the first file is touched: a refused password changes nothing.
    scram_entry = ""
    if scram is not None:
        from queuelake.broker.auth.scram import scram_line

        scram_entry = scram_line(name, password)
    _replace_line(path, name, f"{name}:{hash_password(password)}", new=new)
    if scram is not None:
        _replace_line(Path(scram), scram_entry.partition(":")[0], scram_entry)


def _replace_line(path: Path, name: str, entry: str | None, *, new: bool = False) -> None:
    """Put `entry` in the place of the user's line, or at the end; None removes the line."""
    target = Path(os.path.realpath(path))
    with _directory_lock(target.parent):
        lines = _read_lines(target)
        if new and name in user_names(lines):
            raise RefusedError(f"user {name!r} is already in {path}; use: queuelake users passwd")
        kept: list[str] = []
        for line in lines:
            if user_names([line]) == [name]:
                if entry is not None:
                    kept.append(entry)
                    entry = None
            else:
                kept.append(line)
        if entry is not None:
            kept.append(entry)
        _write_atomically(target, "".join(line + "\n" for line in kept))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path}: is not UTF-8 text: {error.reason}") from error


def _write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError, PermissionError):
            # Edited by root, it must stay readable for the user who runs the broker.
            owner = path.stat()
            os.chown(draft, owner.st_uid, owner.st_gid)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_name(name: str) -> None:
    from queuelake.broker.auth.userfile import username_mistake

    mistake = username_mistake(name)
    if mistake:
        raise typer.BadParameter(f"user name {name!r} {mistake}", param_hint="NAME")


def _check_present(path: Path, name: str) -> None:
    if name not in user_names(_read_lines(path)):
        raise RefusedError(f"user {name!r} is not in {path}")


def _ask_password(from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        import getpass

        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise RefusedError("the two passwords differ; nothing was changed")
    else:
        raise typer.BadParameter("no terminal to ask for the password; use --password-stdin")
    if not password:
        raise RefusedError("the password is empty; nothing was changed")
    return password
