"""The console in a browser, over a made-up fleet: views, orders, permissions, what goes wrong."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.console.browser import enter, new_page
from tests.console.fleet import BAD, Shape
from tests.console.fleet_work import HOSTILE
from tests.console.server import FakeApi, Serving
from tests.console.views import VIEWS, complaints, goto

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Browser, Page, Route

pytestmark = pytest.mark.slow


def test_every_view_shows_its_data_and_nothing_is_blocked(page: Page, url: str) -> None:
    found = complaints(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    enter(page, url)
    for view, text in VIEWS.items():
        goto(page, view)
        page.get_by_text(text).first.wait_for()
        assert not page.get_by_role("alert").count(), view
    assert found == []
    assert {request[: len(url)] for request in requests} == {url}


def test_hostile_names_stay_text(page: Page, url: str) -> None:
    enter(page, url)
    for view in ("overview", "jobs", "incidents", "incidents/12"):
        goto(page, view)
        page.get_by_text(HOSTILE).first.wait_for()
    page.get_by_role("link", name=HOSTILE).first.click()
    page.wait_for_function("location.hash.startsWith('#/jobs/')")
    assert page.evaluate("window.harmed") is None
    assert page.locator("main img").count() == 0


def test_the_token_leaves_the_address(page: Page, url: str) -> None:
    enter(page, url, view="jobs")
    assert page.evaluate("location.hash") == "#/jobs"
    page.reload()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()


def test_a_wrong_token_and_the_way_in_and_out(page: Page, url: str) -> None:
    page.goto(f"{url}/#token=stolen")
    page.get_by_role("alert").get_by_text("the token is not known, or was used").wait_for()
    page.get_by_label("Token").fill("viewer")
    page.keyboard.press("Enter")
    page.get_by_role("navigation", name="Views").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    goto(page, "token=operator&to=%2Fjobs")  # a link that is pasted into the open page
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    assert page.evaluate("location.hash") == "#/jobs"


def test_a_login_by_an_identity_provider_comes_back_to_the_view(
    page: Page, url: str, api: FakeApi
) -> None:
    page.goto(f"{url}/#/jobs?window=1d")
    page.get_by_label("Token").wait_for()
    assert page.get_by_role("link").count() == 0, "none is offered where there is no provider"
    api.provider = "Example SSO"
    page.reload()
    page.get_by_role("link", name="Log in with Example SSO").click()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    assert page.evaluate("location.hash") == "#/jobs?window=1d"
    page.reload()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    assert api.asked[-1] == "logout at the provider"
    page.get_by_label("Token").fill("viewer")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    assert api.asked.count("logout at the provider") == 1, "a token is of this controller alone"


def test_a_job_tells_its_spares_and_lost_ranks(page: Page, url: str) -> None:
    enter(page, url, view="jobs")
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name="train-7")
    headings = page.get_by_role("columnheader").all_inner_texts()
    cells = dict(zip(headings, row.get_by_role("cell").all_inner_texts(), strict=True))
    wanted = {"Ranks": "4", "Spares": "1", "Generation": "3", "Replaced": "2"}
    assert wanted.items() <= cells.items()
    other = page.get_by_role("row", name="train-6")
    assert "unprotected" in other.inner_text()
    goto(page, "jobs/train-7")
    lost = page.get_by_role("table", name="Lost ranks").get_by_role("row", name="replaced")
    for text in ("killed by signal 9", "spare-2", "h5", "4 s"):
        assert text in lost.inner_text()
    page.get_by_role("img", name="Segments sent again").wait_for()


def test_start_an_audit(page: Page, url: str, api: FakeApi) -> None:
    enter(page, url, view="audit")
    page.get_by_role("button", name="Start audit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Checks").fill("be. sw.nic-fw")
    dialog.get_by_role("button", name="Start audit").click()
    page.get_by_text("0 of 8 hosts have reported").wait_for()
    api.report(("h5", "h6", "h7"))
    page.get_by_text("5 of 8 hosts have reported").wait_for()
    api.report(())
    tree = page.get_by_role("list", name="Tree of checks")
    page.get_by_text("Difference to the other run").wait_for()
    assert "1 error" in tree.inner_text()
    tree.get_by_role("button", name=re.compile("Software")).click()
    verdicts = page.get_by_role("table", name="Verdicts")
    assert verdicts.get_by_text("sw.nic-fw").count() == 1
    assert verdicts.get_by_text("be.act.state").count() == 0
    table = page.get_by_role("table", name="Agents and NICs")
    headings = table.get_by_role("columnheader").all_inner_texts()
    assert [each.strip(" ↑↓") for each in headings] == [
        "Status", "Agent", "NIC", "Initialized", "Active", "GID Index", "Connectivity",
    ]  # fmt: skip
    ordered: dict[str, Any] = {
        "hosts": [], "checks": ["be.", "sw.nic-fw"], "active": False,
        "deadline_ns": 60_000_000_000, "by": "alice",
    }  # fmt: skip
    assert api.orders == [("audit", ordered)]


def test_the_stop_switch_needs_a_reason_and_shows_everywhere(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="traffic")
    page.get_by_role("button", name="Stop all traffic control…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Stop").click()
    assert dialog.is_visible()
    assert api.orders == []
    dialog.get_by_label("Why").fill("new firmware on the leaves")
    dialog.get_by_label("I mean the whole fleet").check()
    dialog.get_by_role("button", name="Stop").click()
    page.get_by_text("Traffic control is stopped by alice").wait_for()
    wanted = {"stopped": True, "by": "alice", "why": "new firmware on the leaves"}
    assert api.orders == [("switch", wanted)]


def test_an_order_that_is_refused_says_why_and_keeps_what_was_typed(
    page: Page, url: str, api: FakeApi
) -> None:
    api.failing["incident-action"] = (503, "another controller is in charge")
    enter(page, url, view="incidents/12")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_label("Comment").fill("cable ordered")
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    page.get_by_role("dialog").get_by_text("another controller is in charge").wait_for()
    assert page.get_by_label("Comment").input_value() == "cable ordered"
    api.failing.clear()
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    page.get_by_role("dialog").wait_for(state="detached")
    wanted = {"number": 12, "what": "ack", "by": "alice", "comment": "cable ordered"}
    assert api.orders == [("incident-action", wanted)]


def test_viewers_are_offered_no_order(page: Page, url: str) -> None:
    enter(page, url, "viewer")
    for view, text in VIEWS.items():
        goto(page, view)
        page.get_by_text(text).first.wait_for()
        for name in ("Start audit", "Acknowledge", "Silence…", "Stop all", "Resolve", "Observe"):
            assert not page.get_by_role("button", name=name).count(), (view, name)


def test_a_lost_connection_is_told_and_resumed_without_a_reload(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="incidents")
    page.get_by_text("Live").wait_for()
    page.evaluate("window.kept = true")
    api.drop()
    page.get_by_role("alert").get_by_text("Connection to the controller lost").wait_for()
    assert page.get_by_text(f"{BAD} loses 31 %").first.is_visible()
    incidents = api.answers["incidents"]
    incidents.incidents[0]["summary"] = "now it is worse"
    api.away = False
    page.get_by_text("now it is worse").first.wait_for()
    page.get_by_text("Connection to the controller lost").wait_for(state="detached")
    assert page.evaluate("window.kept") is True


def test_a_session_that_ends_asks_for_a_login_and_comes_back_to_the_view(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="incidents/12")
    page.get_by_text("What to do").wait_for()
    api.role = ""
    api.announce("incidents")
    page.get_by_text("The session has ended").wait_for()
    page.get_by_label("Token").fill("operator")
    page.keyboard.press("Enter")
    page.get_by_text("What was ruled out").wait_for()


def test_a_session_that_ends_soon_says_so(page: Page, url: str, api: FakeApi) -> None:
    api.ends_ns = time.time_ns() + 240 * 10**9  # noqa: TID251 - a browser compares it
    enter(page, url)
    page.get_by_text("The session ends in").wait_for()


def test_another_controller_that_took_over_is_followed_and_told(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="incidents")
    page.get_by_text("● Live").wait_for()
    page.evaluate("window.kept = true")
    api.drop()
    page.get_by_role("alert").get_by_text("Connection to the controller lost").wait_for()
    first = api.answers["controller"]
    api.answers["controller"] = msgspec.structs.replace(
        first, name="standby", epoch=8, seen_epoch=8
    )
    api.answers["incidents"].incidents[0]["summary"] = "as the standby knows it"
    api.away = False
    page.get_by_text("Controller standby has taken over (epoch 8 after 7)").wait_for()
    page.get_by_text("as the standby knows it").first.wait_for()
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_text("has taken over").wait_for(state="detached")
    assert page.evaluate("window.kept") is True
    api.answers["controller"] = msgspec.structs.replace(first, epoch=8, seen_epoch=9)
    api.announce("fleet")
    page.get_by_role("alert").get_by_text("agents do not obey this one any more").wait_for()


ABSURD = (
    "delay?window=99999d&metric=nothing&end=-1", "delay?end=1e300", "delay/x/y?window=0s",
    "delay/h0%2Frail0", "fabric?at=nobody&zoom=1e9&colour=x", "fabric/nobody%2Fnothing",
    "clock?window=-1h&node=%00", "audit?order=zzz&against=zzz", "jobs?window=1000y",
    "jobs/train-7?end=99999999999999999999&window=NaN&flow=none", "incidents/0", "incidents/-7",
    "incidents/99999999999999999999", "incidents/12?then=-1", "incidents/12?then=x",
    "incidents/rules/x", "traffic?window=Infinity", "cost?gpus=-1&window=1e99",
    "nothing/of/this?kind=1", "%E0%A4%A", "overview?x=" + "y" * 4000,
)  # fmt: skip


def test_absurd_addresses_show_something_and_break_nothing(page: Page, url: str) -> None:
    found = complaints(page)
    enter(page, url)
    for view in ABSURD:
        goto(page, view)
        page.get_by_role("main").get_by_role("heading").first.wait_for()
        page.wait_for_timeout(200)
        text = page.get_by_role("main").inner_text()
        assert not re.search(r"NaN|undefined|Infinity|Invalid Date|\[object", text), (view, text)
    assert found == []
    goto(page, "jobs")
    page.get_by_text(VIEWS["jobs"]).first.wait_for()


def test_ten_times_the_data(chrome: Browser) -> None:
    """Every view, of 80 hosts with 4 rails, and an hour of incidents in one."""
    api = FakeApi(Shape(hosts=80, rails=4, leaves=4, spines=8))
    several = api.answers["incidents"].incidents
    many = tuple(
        each | {"number": each["number"] + 1000 * copy} for copy in range(100) for each in several
    )
    api.answers["incidents"] = msgspec.structs.replace(api.answers["incidents"], incidents=many)
    serving = Serving(api).started()
    page = new_page(chrome)
    found = complaints(page)
    try:
        enter(page, serving.url)
        for view, text in VIEWS.items():
            goto(page, view)
            page.get_by_text(
                text.replace("16 NICs, 6 switches", "320 NICs, 24 switches")
            ).first.wait_for()
        goto(page, "incidents")
        page.get_by_role("button", name=re.compile("Show .* more of")).click()
        assert found == []
    finally:
        page.context.close()
        serving.end()


def test_events_bring_news_and_nothing_polls_what_events_tell(
    page: Page, url: str, api: FakeApi
) -> None:
    enter(page, url, view="incidents")
    page.get_by_text(f"{BAD} loses 31 %").first.wait_for()
    page.wait_for_timeout(3_000)
    before = len(api.asked)
    page.wait_for_timeout(3_000)
    assert len(api.asked) == before, api.asked[before:]
    api.answers["incidents"].incidents[0]["summary"] = "told by an event"
    api.announce("incidents")
    page.get_by_text("told by an event").first.wait_for()


def test_a_question_that_fails_harms_its_part_only(page: Page, url: str, api: FakeApi) -> None:
    api.failing["fabric-changes"] = (500, "StoreError; the controller's log has more")
    api.failing["clock-history"] = (502, "the store does not answer")
    enter(page, url)
    page.get_by_text("the store does not answer").wait_for()
    page.get_by_text(f"{BAD} loses 31 %").first.wait_for()


def test_open_incidents_are_shown_while_earlier_ones_are_looked_up(page: Page, url: str) -> None:
    enter(page, url)
    held: list[Route] = []
    page.route(re.compile("/incidents\\?since_ns="), lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    goto(page, f"fabric/{BAD.replace('/', '%2F')}")
    page.get_by_text("earlier ones are being looked up").wait_for()
    page.get_by_role("link", name=f"{BAD} loses 31 %").wait_for()
    held[-1].continue_()
    page.get_by_text("earlier ones are being looked up").wait_for(state="detached")
    page.get_by_role("link", name=f"{BAD} loses 31 %").wait_for()


def test_an_answer_that_the_console_cannot_draw_harms_its_part_only(
    page: Page, url: str, api: FakeApi
) -> None:
    """An incident without a field that views read, as controllers once sent it."""
    incidents = api.answers["incidents"].incidents
    whole = {each["number"]: each.pop("members") for each in incidents}
    found = complaints(page)
    enter(page, url)
    for _ in range(2):
        goto(page, f"fabric/{BAD.replace('/', '%2F')}")
        page.get_by_text("88,120").wait_for()
        page.wait_for_timeout(500)
        assert page.get_by_role("heading", name=f"Fabric / {BAD}").count() == 1
        assert page.get_by_text("Loading…").count() == 0
        alert = page.get_by_role("alert")
        assert "cannot be shown" in alert.inner_text()
        goto(page, "fabric")
        page.get_by_text(VIEWS["fabric"]).wait_for()
        assert not alert.count()
    assert len(found) == 2
    goto(page, f"fabric/{BAD.replace('/', '%2F')}")
    page.get_by_role("alert").wait_for()
    for each in incidents:
        each["members"] = whole[each["number"]]
    api.announce("incidents")
    page.get_by_role("link", name=f"{BAD} loses 31 %").wait_for()
    assert not page.get_by_role("alert").count()


def test_a_change_during_a_request_is_asked_for_again(page: Page, url: str, api: FakeApi) -> None:
    """The answer under way may be older than the change that is announced meanwhile."""
    enter(page, url)
    goto(page, "overview")
    page.get_by_text(VIEWS["overview"]).first.wait_for()
    incident = api.answers["incidents"].incidents[0]
    held: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        if incident["summary"] == "changed meanwhile":
            route.continue_()
        else:
            held.append((route, route.fetch()))

    page.route("**/api/v1/incidents*", hold)
    api.announce("incidents")
    page.wait_for_timeout(500)
    incident["summary"] = "changed meanwhile"
    api.announce("incidents")
    page.wait_for_timeout(500)
    assert held
    for route, answer in held:
        route.fulfill(response=answer)
    page.get_by_text("changed meanwhile").first.wait_for()


def test_an_empty_fleet_says_what_to_do_next(chrome: Browser) -> None:
    api = FakeApi(Shape(hosts=0, rails=0, leaves=0, spines=0))
    for name, answer in api.answers.items():
        if isinstance(answer, dict):
            continue
        fields = {field: type(value)() for field, value in _rows(answer)}
        api.answers[name] = type(answer)(**(_plain(answer) | fields))
    serving = Serving(api).started()
    page = new_page(chrome)
    try:
        enter(page, serving.url)
        for view, text in {
            "overview": "No agent is attached.", "fabric": "No path has been learnt yet.",
            "delay": "No probe was sent in that time.", "clock": "No clock has been solved yet.",
            "jobs": "No job ran in that time.", "traffic": "No path was changed in that time.",
            "incidents": "No incident.",
        }.items():  # fmt: skip
            goto(page, view)
            page.get_by_text(text).first.wait_for()
    finally:
        page.context.close()
        serving.end()


def _plain(answer: Any) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


def _rows(answer: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in _plain(answer).items() if isinstance(value, tuple)]


def test_the_fleet_as_it_was_when_an_incident_opened(page: Page, url: str, api: FakeApi) -> None:
    enter(page, url, view="incidents/12")
    page.get_by_role("link", name="when it opened").click()
    page.get_by_role("heading", name=re.compile("The fleet at")).wait_for()
    opened_ns = api.answers["incidents"].incidents[0]["opened_ns"]
    then = -(-opened_ns // 10**9) * 10**9
    assert page.evaluate("location.hash") == f"#/incidents/12?then={then}"
    page.wait_for_selector("canvas[data-detail]")
    open_then = page.get_by_role("table", name="Incidents")
    assert open_then.get_by_text(f"{BAD} loses 31 %").count() == 1
    page.get_by_role("button", name="− 1 min").click()
    page.get_by_text("1 minute before it opened").wait_for()
    assert open_then.get_by_text(f"{BAD} loses 31 %").count() == 0
    assert open_then.get_by_text("h1/rail0 flapped").count() == 0
    page.reload()
    page.get_by_text("1 minute before it opened").wait_for()
