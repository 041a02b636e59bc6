"""The two pages which need no NiceGUI: the login, and what to install when it is missing."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

_INSTALL = 'pip install "queuelake[console]"'


def login_page(mistake: str = "", name: str = "") -> str:
    shown = f'<p class="mistake" role="alert">{escape(mistake)}</p>' if mistake else ""
    return _page(
        "Log in",
        Template(_FORM).substitute(mistake=shown, name=escape(name, quote=True)),
    )


def missing_page() -> str:
    text = f"<p>The console is not installed here. This installs it:</p><pre>{_INSTALL}</pre>"
    return _page("No console", f"{text}<p>REST, metrics and the command line work without.</p>")


def _page(title: str, body: str) -> str:
    style = files(__package__).joinpath("login.css").read_text()
    return Template(_DOCUMENT).substitute(title=title, style=style, body=body)


_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>$title · Queuelake</title>
<style>$style</style>
</head>
<body><main>
<h1><span class="mark" aria-hidden="true"></span>Queuelake</h1>
$body
</main></body>
</html>
"""

_FORM = """<form method="post">
$mistake
<label>API key or user
<input name="name" value="$name" autocomplete="username" autocapitalize="none" spellcheck="false"
 required autofocus></label>
<label>Secret or password
<input name="secret" type="password" autocomplete="current-password"></label>
<button type="submit">Log in</button>
<p class="hint">The first key is the line <code>key:secret</code> in the file
<code>api-key</code> of the data directory; the whole line may go into the first field.</p>
</form>
"""
