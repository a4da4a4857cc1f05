"""The OpenAPI document, derived from the routes and the types of messages."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import msgspec

from syntony import __version__
from syntony.api.bodies import JSON
from syntony.api.routes import ROUTES, Route
from syntony.wire.rest import (
    CSRF,
    CURSOR,
    EVENTS,
    MAX_PAGE_ROWS,
    NEXT_CURSOR,
    OIDC,
    OIDC_CALLBACK,
    OIDC_DEVICE,
    OIDC_DEVICE_TOKEN,
    OIDC_LOGIN,
    OIDC_LOGOUT,
    OPENAPI,
    PAGE_SIZE,
    SESSION,
    DeviceLogin,
    DeviceToken,
    DeviceTokenRequest,
    OidcView,
    Problem,
    SessionRequest,
    SessionView,
    route_name,
)

_REF = "#/components/schemas/{name}"
_INT64 = (1 << 63) - 1


@cache
def document() -> bytes:
    kinds = [each for route in ROUTES.values() for each in (route.request, route.answer)]
    extra = (DeviceLogin, DeviceToken, DeviceTokenRequest, OidcView, Problem, SessionRequest,
             SessionView)  # fmt: skip
    every = list(dict.fromkeys([*kinds, *extra]))
    schemas, components = msgspec.json.schema_components(every, ref_template=_REF)
    of = dict(zip(every, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES.values():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of, components)
    session = {JSON: {"schema": of[SessionView]}}
    paths[SESSION] = {
        "get": _plain("session", "Who the caller is to the API.", session),
        "post": _before_login(
            "begin-session", "Exchange a token for a browser's session.", of[SessionView],
            of[SessionRequest],
        ),
        "delete": _plain("end-session", f"End the session; needs the header {CSRF}.", None),
    }  # fmt: skip
    paths[OIDC] = {
        "get": _before_login(
            "oidc", "Whether the login page offers an identity provider.", of[OidcView]
        )
    }
    for path, name, summary in (
        (OIDC_LOGIN, "begin-oidc-login", "Send a browser to the identity provider."),
        (OIDC_CALLBACK, "end-oidc-login", "The provider has sent it back; begins a session."),
        (OIDC_LOGOUT, "oidc-logout", "Send a browser to end its login at the provider, too."),
    ):
        paths[path] = {"get": _for_browsers(name, summary)}
    paths[OIDC_DEVICE] = {
        "post": _before_login(
            "begin-device-login", "Begin a login that is finished in a browser.", of[DeviceLogin]
        )
    }
    paths[OIDC_DEVICE_TOKEN] = {
        "post": _before_login(
            "device-token", "The token of a login by device, once it is finished.",
            of[DeviceToken], of[DeviceTokenRequest],
        )
    }  # fmt: skip
    paths[EVENTS] = {"get": _events()}
    paths[OPENAPI] = {"get": _plain("openapi", "This document.", {JSON: {"schema": {}}})}
    answered = msgspec.json.encode([paths, components])
    for name in {route.request.__name__ for route in ROUTES.values()}:
        if f'"{_REF.format(name=name)}"'.encode() not in answered:
            del components[name]  # its fields are parameters, or those of a body
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Syntony",
                "version": __version__,
                "description": "Ask a fleet's controller, and give it orders.",
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "responses": {"Problem": _problem()},
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "certificate": {"type": "mutualTLS"},
                },
            },
            "security": [{"bearer": []}, {"certificate": []}],
        }
    )


def _operation(route: Route, of: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{route.method.lower()}-{route_name(route.request)}",
        "summary": (inspect.getdoc(route.request) or "").partition("\n\n")[0].replace("\n", " "),
        "x-syntony-roles": sorted(route.roles),
        "responses": {
            "200": {"description": "The answer.", "content": {JSON: {"schema": of[route.answer]}}},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    properties = {
        name: _bound(each)
        for name, each in components[route.request.__name__]["properties"].items()
        if name != "type"
    }
    required = set(components[route.request.__name__].get("required", ())) - {"type", "by"}
    if route.method == "POST":
        shape = {
            "type": "object", "properties": properties, "required": sorted(required),
            "additionalProperties": False,
        }  # fmt: skip
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": shape}}}
        return found
    found["parameters"] = [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in properties.items()
    ]
    if route.paged:
        found["parameters"] += _paging()
        header = {"description": "Where the next page begins.", "schema": {"type": "string"}}
        found["responses"]["200"]["headers"] = {NEXT_CURSOR: header}
    return found


def _bound(schema: dict[str, Any]) -> dict[str, Any]:
    """Limit integers to 64 bits."""
    bounds = {"minimum": -_INT64 - 1, "maximum": _INT64}
    return schema | (bounds if schema.get("type") == "integer" else {})


def _paging() -> list[dict[str, Any]]:
    size = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ROWS}
    return [
        {"name": PAGE_SIZE, "in": "query", "required": False, "schema": size,
         "description": "Rows of each list in one answer; without it, all."},
        {"name": CURSOR, "in": "query", "required": False, "schema": {"type": "string"},
         "description": f"From `{NEXT_CURSOR}`: the page after that answer."},
    ]  # fmt: skip


def _before_login(
    name: str, summary: str, answer: dict[str, Any], body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An operation without credentials; schemas of its answer and of its body, if it has one."""
    found = _plain(name, summary, {JSON: {"schema": answer}}) | {"security": []}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return found


def _for_browsers(name: str, summary: str) -> dict[str, Any]:
    """An address that a browser opens directly: it is redirected, or gets a page."""
    page = {"description": "Why it was not carried out.", "content": {"text/html": {}}}
    responses = {"303": {"description": "Where to go."}, "default": page}
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def _events() -> dict[str, Any]:
    found = _plain("events", "Server-sent events: what has changed.", {"text/event-stream": {}})
    header = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
    found["parameters"] = [header]
    return found


def _plain(name: str, summary: str, content: dict[str, Any] | None) -> dict[str, Any]:
    is_valid = {"200": {"description": "The answer.", "content": content}}
    responses = is_valid if content is not None else {"204": {"description": "Done."}}
    problem = {"default": {"$ref": "#/components/responses/Problem"}}
    return {"operationId": name, "summary": summary, "responses": responses | problem}


def _problem() -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Problem")}
    return {
        "description": "Why it was not carried out (RFC 9457).",
        "content": {"application/problem+json": {"schema": schema}},
    }
