"""What all pages have in common: header, navigation, the state of the broker, and how one is built.

A page is a function with `@page(...)`, in a module which `site` imports:

    @page("/clients", "Clients", icon="devices")
    async def clients(visit: Visit, search: str = "") -> None:
        found = await visit.do(Services.clients, 100, "")

Its parameters after `visit` come from the query of the address, as text. What it raises as a
QueuelakeError is shown in its place; the same error in the handler of a button is a notification.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import urlencode

from nicegui import context, ui

from queuelake import __version__
from queuelake.admin.console import widgets
from queuelake.admin.console.mount import PREFIX, STATE
from queuelake.admin.console.session import SessionEndedError
from queuelake.admin.console.visit import Visit
from queuelake.apikey import Role
from queuelake.errors import QueuelakeError

THEME_COOKIE = "queuelake-theme"
STATE_INTERVAL_S = 1.0
DRAWER_PX = 1000  # up to this width the navigation lies over the page, when it is asked for

Build = Callable[..., Awaitable[None]]
When = Callable[[Visit], bool]  # whether the navigation shows it now


class Page(NamedTuple):
    path: str
    title: str
    icon: str  # empty: it has no place in the navigation
    role: Role
    section: str
    when: When | None
    build: Build


_pages: dict[str, Page] = {}


def page(
    path: str,
    title: str,
    *,
    icon: str = "",
    role: Role = "viewer",
    section: str = "",
    when: When | None = None,
) -> Callable[[Build], Build]:
    """Make a function a page: it builds its content for a `Visit`."""

    def register(build: Build) -> Build:
        _pages[path] = Page(path, title, icon, role, section, when, build)
        return build

    return register


def link_to(path: str, **query: str) -> str:
    """The address of a page, for links and rows: `link_to("/queue", name="tasks/image")`."""
    return f"{path}?{urlencode(query)}" if query else path


def root() -> None:
    """The frame; the page within it changes without loading it again."""
    visit: Visit = context.client.request.scope["state"][STATE]
    client = context.client
    client.on_connect(lambda: visit.sampler.join(client.id))
    client.on_disconnect(lambda: visit.sampler.leave(client.id))
    client.on_exception(show_error)
    ui.colors(primary="#0b7285", positive="#2b8a3e", negative="#c92a2a", warning="#e67700")
    drawer = _drawer(visit)
    _header(visit, drawer)
    with ui.column().classes("ql-page"):
        banner = widgets.Banner()
        routes = {one.path: _shown(one) for one in _pages.values()}
        ui.sub_pages(routes, data={"visit": visit}).classes("ql-content")
    ui.timer(STATE_INTERVAL_S, lambda: _watch(visit, banner))


def show_error(exc: Exception) -> None:
    """What went wrong in a handler: a refusal is said, a mistake of ours is admitted."""
    if isinstance(exc, SessionEndedError):
        _leave()
    elif isinstance(exc, QueuelakeError):
        widgets.say_refused(str(exc))
    else:
        widgets.say_refused("That failed; the log of the admin process says why.")


def _shown(one: Page) -> Build:
    @functools.wraps(one.build)
    async def build(visit: Visit, **query: str) -> None:
        ui.page_title(f"{one.title} · Queuelake")
        try:
            if not visit.is_at_least(one.role):
                widgets.empty("lock", "Not for this role", f"This page needs the role {one.role}.")
                return
            await one.build(visit, **query)
        except SessionEndedError:
            _leave()
        except QueuelakeError as exc:
            widgets.empty("cloud_off", "This page cannot be shown", str(exc))

    return build


def _leave() -> None:
    ui.run_javascript(f"location.assign((window.path_prefix || {PREFIX!r}) + '/login')")


async def _watch(visit: Visit, banner: widgets.Banner) -> None:
    """Once a second in each tab: is somebody still logged in, and does the broker answer?"""
    if not await visit.stands():
        _leave()
        return
    sampler = visit.sampler
    if sampler.problem:
        banner.show("The broker does not answer", [sampler.problem])
    elif not sampler.readiness.ready:
        banner.show("The broker is not ready", sampler.readiness.reasons)
    else:
        banner.hide()


def _header(visit: Visit, drawer: ui.left_drawer) -> None:
    caller = visit.caller
    with ui.header().classes("ql-header"):
        menu = ui.button(icon="menu", on_click=drawer.toggle).props("flat round dense")
        menu.props('aria-label="Navigation"')
        with ui.link(target="/").classes("ql-brand"):
            ui.element("span").classes("ql-mark")
            ui.label("Queuelake")
        ui.space()
        _theme_button()
        with ui.button(icon="account_circle").props('flat dense no-caps aria-label="Account"'):
            ui.label(caller.name).classes("ql-account gt-xs")
            with ui.menu().props("auto-close"):
                with ui.item().props("inert"), ui.item_section():
                    ui.item_label(caller.name)
                    ui.item_label(f"role: {caller.role}").props("caption")
                ui.separator()
                widgets.menu_item("Log out", lambda: _log_out(visit))


def _log_out(visit: Visit) -> None:
    visit.log_out()
    _leave()


def _theme_button() -> None:
    """Light, dark, or as the system has it until somebody chooses; a cookie remembers it."""
    chosen = context.client.request.cookies.get(THEME_COOKIE)
    dark = ui.dark_mode({"dark": True, "light": False}.get(chosen or ""))
    button = ui.button(icon="contrast").props('flat round dense aria-label="Light or dark"')

    async def change() -> None:
        is_dark = bool(await ui.run_javascript("return Quasar.Dark.isActive"))
        dark.set_value(not is_dark)
        theme = "light" if is_dark else "dark"
        kept = f"{THEME_COOKIE}={theme}; path={PREFIX}; max-age=31536000; samesite=strict"
        ui.run_javascript(f"document.cookie = {kept!r}")

    button.on_click(change)


def _drawer(visit: Visit) -> ui.left_drawer:
    drawer = ui.left_drawer(value=False, bordered=True).classes("ql-drawer")
    drawer.props(f"show-if-above width=220 breakpoint={DRAWER_PX}")
    # Where it lies over the page it has to go, once somebody has chosen where to go.
    hide = f"() => window.innerWidth <= {DRAWER_PX} && getElement({drawer.id}).hide()"
    section = ""
    with drawer, ui.element("nav").props('aria-label="Pages"'):
        for one in _pages.values():
            if not one.icon or not visit.is_at_least(one.role):
                continue
            if one.section != section:
                section = one.section
                ui.label(section).classes("ql-section")
            entry = ui.link(target=one.path).classes("ql-nav").props(f'data-path="{one.path}"')
            with entry.on("click", js_handler=hide):
                ui.icon(one.icon)
                ui.label(one.title)
            if one.when is not None:
                _show_when(one.when, visit, entry)
        ui.space()
        ui.label(f"Queuelake {__version__}").classes("ql-version")
    _mark_current()
    return drawer


def _show_when(when: When, visit: Visit, entry: ui.link) -> None:
    entry.set_visibility(when(visit))
    ui.timer(STATE_INTERVAL_S, lambda: entry.set_visibility(when(visit)))


def _mark_current() -> None:
    """The entry of the page which is shown; a page of one queue belongs to the queues."""
    router = context.client.sub_pages_router

    def mark(path: str) -> None:
        here = path.partition("?")[0].rstrip("/") or "/"
        if here not in _pages:
            return
        ui.run_javascript(
            "document.querySelectorAll('.ql-nav').forEach(a => a.setAttribute('aria-current',"
            f" a.dataset.path === {_parents.get(here, here)!r} ? 'page' : 'false'))"
        )

    router.on_path_changed(mark)
    context.client.on_connect(lambda: mark(router.current_path))


_parents: dict[str, str] = {}


def belongs_to(path: str, parent: str) -> None:
    """A page without an entry of its own in the navigation is shown under another's."""
    _parents[path] = parent
