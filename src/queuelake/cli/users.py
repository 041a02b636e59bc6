"""`queuelake users`: password files in the format of mosquitto_passwd, and SCRAM files beside them.

How files are changed is in broker/auth/useredit.py: a broker which does the same over REST and a
command wait for each other.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queuelake.cli.keys import Role
from queuelake.errors import RefusedError

if TYPE_CHECKING:
    from queuelake.broker.auth.useredit import UserEditor

EPILOG = """
Examples:

  queuelake users add users.txt alice              asks for the password
  echo "$PW" | queuelake users add users.txt bob --password-stdin
  queuelake users add users.txt carol --role operator      may log in to the console
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
WithRole = Annotated[
    Role | None, typer.Option("--role", help="What the user may do in the console; none: nothing.")
]
Platform = Annotated[
    bool, typer.Option("--platform", help="Clients with this name are platform accounts.")
]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]


@app.command()
def add(
    file: File,
    name: Name,
    role: WithRole = None,
    platform: Platform = False,
    scram: Scram = None,
    password_stdin: FromStdin = False,
) -> None:
    """Add a user; the password is asked for, or read with --password-stdin."""
    from queuelake.broker.auth.passwords import Grants
    from queuelake.broker.auth.useredit import Secret

    _check_name(name)
    editor = _editor(file, scram)
    if name in editor.names():
        raise RefusedError(f"user {name!r} is already in {file}; use: queuelake users passwd")
    secret = Secret(_ask_password(password_stdin))
    editor.add(name, secret, Grants(role.value if role is not None else None, platform))
    print(f"added {name!r} to {file}")


@app.command()
def passwd(file: File, name: Name, scram: Scram = None, password_stdin: FromStdin = False) -> None:
    """Change the password of a user."""
    from queuelake.broker.auth.useredit import Secret

    editor = _editor(file, scram)
    _check_present(editor, file, name)
    editor.change(name, Secret(_ask_password(password_stdin)), None)
    print(f"changed the password of {name!r} in {file}")


@app.command()
def grant(
    file: File,
    name: Name,
    role: Annotated[
        str, typer.Option("--role", help="viewer, operator or admin of the console; none: none.")
    ] = "none",
    platform: Platform = False,
) -> None:
    """Say anew what a user may do besides connecting; the password stays."""
    from queuelake.broker.auth.passwords import Grants

    wanted = None if role == "none" else _role(role)
    _editor(file, None).change(
        name, None, Grants(wanted.value if wanted is not None else None, platform)
    )
    print(f"{name!r} in {file}: role {role}, {'' if platform else 'no '}platform account")


@app.command()
def rm(file: File, name: Name, scram: Scram = None) -> None:
    """Remove a user; with --scram also from that file."""
    _editor(file, scram).remove(name)
    print(f"removed {name!r} from {file}")


@app.command("list")
def list_users(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False
) -> None:
    """Print the user names, one on each line."""
    if not Path(file).exists():
        raise RefusedError(f"{file}: there is no such file")
    names = _editor(file, None).names()
    if as_json:
        import json

        print(json.dumps(names))
    else:
        for name in names:
            print(name)


def _editor(file: str, scram: str | None) -> UserEditor:
    from queuelake.broker.auth.useredit import UserEditor

    return UserEditor(Path(file), Path(scram) if scram is not None else None)


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        message = f"{text!r}: viewer, operator, admin or none"
        raise typer.BadParameter(message, param_hint="--role") from None


def _check_name(name: str) -> None:
    from queuelake.broker.auth.userfile import username_mistake

    mistake = username_mistake(name)
    if mistake:
        raise typer.BadParameter(f"user name {name!r} {mistake}", param_hint="NAME")


def _check_present(editor: UserEditor, file: str, name: str) -> None:
    if name not in editor.names():
        raise RefusedError(f"user {name!r} is not in {file}")


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
