"""The OpenAPI document: complete, and what it promises is what a foreign client finds."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from tests.api.conftest import ApiController

from syntony.api.openapi import document
from syntony.api.routes import ROUTES
from syntony.wire.rest import (
    EVENTS,
    OIDC,
    OIDC_CALLBACK,
    OIDC_DEVICE,
    OIDC_DEVICE_TOKEN,
    OIDC_LOGIN,
    OIDC_LOGOUT,
    OPENAPI,
    SESSION,
)

EXAMPLES = 8
"""Of each route, valid ones and others."""
CHANGING = {"/api/v1/takeover", "/api/v1/revoke-access", "/api/v1/revoke", SESSION, EVENTS}
"""Not drawn: they would end our own access, or never end."""


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def test_every_route_is_in_it_and_every_reference_leads_somewhere() -> None:
    found = json.loads(document())
    described = {(method.upper(), path) for path, each in found["paths"].items() for method in each}
    asked = (OPENAPI, EVENTS, OIDC, OIDC_LOGIN, OIDC_CALLBACK, OIDC_LOGOUT)
    others = {("GET", path) for path in asked}
    others |= {("POST", path) for path in (OIDC_DEVICE, OIDC_DEVICE_TOKEN)}
    others |= {(method, SESSION) for method in ("GET", "POST", "DELETE")}
    assert described == set(ROUTES) | others
    for reference in references(found):
        _, _, kind, name = reference.split("/")
        assert name in found["components"][kind], reference
    names = Counter(
        operation["operationId"] for each in found["paths"].values() for operation in each.values()
    )
    assert max(names.values()) == 1


def test_who_gives_an_order_is_optional_and_required_parameters_are_required() -> None:
    found = json.loads(document())
    body = found["paths"]["/api/v1/switch"]["post"]["requestBody"]
    order = body["content"]["application/json"]["schema"]
    assert order["required"] == ["stopped"]
    assert set(order["properties"]) == {"stopped", "by", "why"}
    parameters = {
        each["name"]: each["required"]
        for each in found["paths"]["/api/v1/jobs"]["get"]["parameters"]
    }
    assert parameters == {"window_ns": True, "page_size": False, "cursor": False}


@pytest.mark.slow
def test_drawn_requests_get_what_the_document_promises(api: ApiController) -> None:
    """Valid and invalid ones: never a defect, always a described answer."""
    import hypothesis
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    token = api.token("operator", "schemathesis")
    schema = schemathesis.openapi.from_dict(json.loads(document()))
    schema.config.update(base_url=api.url)
    checks = [not_a_server_error, status_code_conformance, content_type_conformance,
              response_schema_conformance]  # fmt: skip
    statuses: Counter[int] = Counter()
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        if operation.path in CHANGING:
            continue

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        def try_it(case: Any) -> None:
            response = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=600)
            statuses[response.status_code] += 1
            case.validate_response(response, checks=checks)

        try_it()
    print(dict(statuses))
    assert statuses[200] >= len(ROUTES)
    assert not statuses[401]
