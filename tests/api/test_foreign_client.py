"""A client that knows nothing but the OpenAPI document, and `curl` as the docs use it."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.api.conftest import ApiController

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "use-the-api.md"
ROWS, PAGE = 60, 7
JSON, CHANGES = "application/json", "/api/v1/changes"
TOPICS, STREAM_S, PATIENCE_S = 4, 4.0, 300.0


@pytest.fixture(scope="module", autouse=True)
def curl() -> str:
    found = shutil.which("curl")
    if not found:
        pytest.skip(
            "needs curl (Debian: curl): the API is NOT tested with a client that is not ours"
        )
    return found


class Recorded(NamedTuple):
    """A controller with orders on record, and who gives more."""

    api: ApiController
    operator: str

    def order(self, number: int) -> None:
        """One row of the audit log, and an event."""
        body = {"stopped": number % 2 == 0, "why": f"order {number}"}
        assert self.api.call("POST", "/api/v1/switch", self.operator, body).status == 200

    def ask(self, path: str, token: str) -> Answer:
        """A GET by curl."""
        done = subprocess.run(
            ["curl", "-sS", "-D", "-", "-H", f"Authorization: Bearer {token}",
             f"{self.api.url}{path}"],
            capture_output=True, text=True, timeout=600, check=True,
        )  # fmt: skip
        head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
        status, *lines = head.splitlines()
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
        }
        return Answer(int(status.split()[1]), headers, json.loads(body))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    controller = ApiController(tmp_path_factory.mktemp("foreign"))
    controller.start()
    try:
        found = Recorded(controller, controller.token("operator", "olga"))
        for number in range(ROWS):
            found.order(number)
        yield found
    finally:
        controller.end(signal.SIGKILL)


def pages(rows: Recorded, path: str, document: Any, token: str) -> Iterator[Any]:
    """All pages of a question, by what the document says of paging."""
    operation = document["paths"][path]["get"]
    assert {"page_size", "cursor"} <= {each["name"] for each in operation["parameters"]}
    (header,) = operation["responses"]["200"]["headers"]
    found = rows.ask(f"{path}?page_size={PAGE}", token)
    yield found.body
    while cursor := found.headers.get(header.lower()):
        found = rows.ask(f"{path}?cursor={cursor}", token)
        assert found.status == 200
        yield found.body


def test_every_question_answers_as_its_schema_says(rows: Recorded) -> None:
    """Without any type of Syntony's: routes, parameters and schemas are the document's."""
    schemas = pytest.importorskip(
        "jsonschema",
        reason="needs jsonschema (make dev): answers of the API are NOT checked by its schemas",
    )
    token = rows.api.token()
    document = rows.ask("/api/v1/openapi.json", token).body
    statuses: list[int] = []
    for path, operations in document["paths"].items():
        operation = operations.get("get", {})
        schema = operation.get("responses", {}).get("200", {}).get("content", {}).get(JSON)
        roles = operation.get("x-syntony-roles", ["viewer"])
        required = [each for each in operation.get("parameters", ()) if each.get("required")]
        if not schema or not schema["schema"] or "viewer" not in roles or required:
            continue
        found = rows.ask(path, token)
        if found.status != 200:
            assert found.headers["content-type"] == "application/problem+json"
            schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
        whole = {"components": document["components"], **schema["schema"]}
        schemas.Draft202012Validator(whole).validate(found.body)
        statuses.append(found.status)
    assert statuses.count(200) > 20
    assert set(statuses) <= {200, 400}  # there is no fleet time yet


def test_pages_are_of_one_instant_while_rows_are_added(rows: Recorded) -> None:
    token = rows.api.token()
    document = rows.ask("/api/v1/openapi.json", token).body
    over = threading.Event()

    def add() -> None:
        number = ROWS
        while not over.is_set():
            rows.order(number)
            number += 1

    adding = threading.Thread(target=add)
    adding.start()
    try:
        found: list[int] = []
        for page in pages(rows, CHANGES, document, token):
            assert len(page["changes"]) <= PAGE
            found += [each["number"] for each in page["changes"]]
        later = rows.ask(CHANGES, token).body["changes"]
        assert len(found) >= ROWS
        assert found == list(range(found[0], found[0] + len(found))), "lost, or doubled"
        assert later[-1]["number"] > found[-1], "no row was added meanwhile"
    finally:
        over.set()
        adding.join()


def events(api: ApiController, token: str, last: str = "") -> list[str]:
    """Ids of what a stream sends until `STREAM_S` after the first event, in order."""
    more = ["-H", f"Last-Event-ID: {last}"] if last else []
    words = ["curl", "-sSN", "-H", f"Authorization: Bearer {token}", *more]
    with subprocess.Popen([*words, f"{api.url}/api/v1/events"], stdout=subprocess.PIPE) as stream:
        assert stream.stdout is not None
        said, end_s = b"", time.monotonic() + PATIENCE_S
        arrives = select.poll()  # unlike select(), takes any number of open files
        arrives.register(stream.stdout)
        while arrives.poll(1e3 * max(0.0, end_s - time.monotonic())):
            part = os.read(stream.stdout.fileno(), 1 << 16)
            assert part, "the stream has ended"
            before, said = said, said + part
            if b"id: " in said and b"id: " not in before:
                end_s = time.monotonic() + STREAM_S
        stream.kill()
    return re.findall(r"^id: (\S+)$", said.decode(), re.MULTILINE)


def test_a_stream_that_breaks_goes_on_where_it_was(rows: Recorded) -> None:
    """By the id of the last event: none is lost, none comes twice."""
    token = rows.api.token()
    got = events(rows.api, token)
    for number in (1, 2):
        rows.order(number)
        more = events(rows.api, token, got[-1])
        assert more, "what happened meanwhile is told to who comes back"
        got += more
    numbers = [int(each.partition("-")[2]) for each in got]
    assert len({each.partition("-")[0] for each in got}) == 1
    first = max(numbers[:TOPICS])  # who is new gets the newest of each topic, wherever that is
    later = [each for each in numbers if each > first]
    assert later == list(range(first + 1, first + 1 + len(later)))
    assert len(set(numbers)) == len(numbers)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_curl_lines_of_the_guide_run_as_they_stand(rows: Recorded) -> None:
    lines = [
        line
        for block in blocks("sh")
        for line in block.splitlines()
        if "curl" in line and "$TOKEN" in line
    ]
    assert len(lines) >= 2
    environment = {"PATH": os.environ["PATH"], "TOKEN": rows.api.token(), "URL": rows.api.url}
    for line in lines:
        shell = subprocess.Popen(
            ["sh", "-c", f"exec {line}"], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert shell.stdout is not None
        try:
            if "/events" in line:
                said = [shell.stdout.readline() for _ in range(4)]
                assert any(each.startswith("event: ") for each in said), said
            else:
                assert "type" in json.loads(shell.stdout.read())
        finally:
            shell.kill()
            shell.wait()
            shell.stdout.close()


def test_the_python_of_the_guide_runs_as_it_stands(rows: Recorded) -> None:
    (text,) = blocks("python")
    assert '"https://syntony.example:8445", token=TOKEN, ca="ca.crt"' in text
    text = text.replace('"https://syntony.example:8445"', repr(rows.api.url)).replace(
        ', ca="ca.crt"', ""
    )
    script = f"TOKEN = {rows.api.token('operator', 'guide')!r}\n{text}"
    running = subprocess.Popen([sys.executable, "-uc", script], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        assert running.stdout.readline().split()[0] in {"incidents", "fleet", "switch", "jobs"}
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
