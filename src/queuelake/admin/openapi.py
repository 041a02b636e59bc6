"""The OpenAPI document and its page.

The schemas come from the Structs which the answers are made of, so a field has one definition.
The page is plain HTML made here: it works without a network, and a page that is opened with an
API key loads no script from anywhere.
"""

from __future__ import annotations

import functools
from html import escape
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, JSONResponse, Response

from queuelake.admin.auth import OPEN_PATHS
from queuelake.control import Problem

STYLE = "body{font:16px system-ui;max-width:60em;margin:2em auto} pre,code{background:#8882}"
REF_TEMPLATE = "#/components/schemas/{name}"
KEY_SCHEMES: dict[str, Any] = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "description": "key:secret"},
}

Document = dict[str, Any]

# Every Struct which a route returns: filled while the routes are declared, read for the document.
_returned: set[type[msgspec.Struct]] = set()


def returns(kind: type[msgspec.Struct], *statuses: int) -> dict[int | str, Document]:
    """What a route answers, for the `responses` argument of its decorator."""
    _returned.add(kind)
    content = {"application/json": {"schema": reference(kind)}}
    return {status: {"content": content} for status in statuses or (200,)}


def reference(kind: type[msgspec.Struct]) -> Document:
    """A Struct where a schema is meant; one which no route returns is not in the document."""
    return {"$ref": REF_TEMPLATE.format(name=kind.__name__)}


def add_openapi_routes(app: FastAPI) -> None:
    """Serve the document and the page, which are made when somebody first asks."""

    @functools.cache
    def document() -> Document:
        return _document(app)

    @functools.cache
    def page() -> str:
        return _page(document())

    @app.get("/api/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(document())

    @app.get("/api/docs", include_in_schema=False)
    async def docs() -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(page(), headers={"Content-Security-Policy": policy})


def _document(app: FastAPI) -> Document:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # such requests are answered with 400
            operation["responses"]["default"] = returns(Problem)[200] | {"description": "Error"}
            operation["security"] = [] if path in OPEN_PATHS else [{n: []} for n in KEY_SCHEMES]
    _, schemas = msgspec.json.schema_components(_returned, ref_template=REF_TEMPLATE)
    document["components"] = {"schemas": schemas, "securitySchemes": KEY_SCHEMES}
    return document


def _page(document: Document) -> str:
    title = escape(document["info"]["title"])
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title} API</title>",
        f"<style>{STYLE}</style>",
        f"<h1>{title} API {escape(document['info']['version'])}</h1>",
        f"<p>{escape(document['info'].get('description', ''))}</p>",
        "<p>For programs: <a href='/api/openapi.json'>/api/openapi.json</a></p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += _operation_html(path, method, operation)
    parts.append("<h2>Schemas</h2>")
    for name, schema in document["components"]["schemas"].items():
        text = escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
        parts.append(f"<h3 id='{escape(name)}'>{escape(name)}</h3><pre>{text}</pre>")
    return "".join(parts)


def _operation_html(path: str, method: str, operation: Document) -> list[str]:
    parts = [f"<h2><code>{method.upper()} {escape(path)}</code></h2>"]
    parts.append(f"<p>{escape(operation.get('description', ''))}</p><dl>")
    for parameter in operation.get("parameters", []):
        parts.append(f"<dt><code>{escape(parameter['name'])}</code> ({parameter['in']})</dt>")
        parts.append(f"<dd>{escape(parameter.get('description', ''))}</dd>")
    for status, response in operation["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        name = escape(schema.get("$ref", "").rpartition("/")[2])
        link = f"<a href='#{name}'>{name}</a>" if name else escape(response["description"])
        parts.append(f"<dt>{escape(status)}</dt><dd>{link}</dd>")
    parts.append("</dl>")
    return parts
