"""What receivers are sent, held against what they publish of their forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syntony.alerts import render
from syntony.alerts.incidents import ChangeKind, Incident, IncidentState
from syntony.alerts.rules import Severity
from syntony.model import S

T0 = 1_700_000_000 * S
GPU_7 = render.FleetName("gpu-7", "5ca1ab1e")


def incident(**fields: Any) -> Incident:
    values: dict[str, Any] = {
        "number": 7, "rule": "link-flapping", "subject": "h0/rail0",
        "severity": Severity.CRITICAL, "state": IncidentState.OPEN,
        "summary": "h0/rail0: link has flapped 9 times <within> the past hour",
        "remedy": "reseat & clean", "opened_ns": T0, "updated_ns": T0,
        "evidence": tuple(f"seen {number}" for number in range(8)), "jobs": ("llm", "eval"),
        "repeats": 2,
    }  # fmt: skip
    return Incident(**(values | fields))


@pytest.mark.parametrize("severity", Severity)
def test_pagerduty_takes_a_trigger(severity: Severity) -> None:
    """Events API v2: payload.summary (1,024 at most), source and severity (one of four) must be
    there; dedup_key is 255 characters at most."""
    reported = incident(severity=severity, summary="x" * 5_000)
    event = render.pagerduty(ChangeKind.PAGE, reported, GPU_7)
    payload = event["payload"]
    assert len(payload["summary"]) == 1_024
    assert payload["source"] == "h0/rail0"
    assert payload["severity"] in {"critical", "error", "warning", "info"}
    assert payload["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert len(event["dedup_key"]) <= 255
    assert payload["custom_details"]["jobs"] == ["llm", "eval"]
    assert payload["custom_details"]["remedy"] == "reseat & clean"
    json.dumps(event)


@pytest.mark.parametrize("kind", [ChangeKind.ACKNOWLEDGED, ChangeKind.CLEAR])
def test_pagerduty_needs_no_payload_for_the_rest(kind: ChangeKind) -> None:
    event = render.pagerduty(kind, incident(), GPU_7)
    assert set(event) == {"event_action", "dedup_key"}


def test_slack_shows_what_where_and_what_to_do_and_no_marks_of_ours() -> None:
    reported = render.slack(ChangeKind.PAGE, incident(), GPU_7, [incident(number=8, summary="a<b")])
    assert reported["text"] == (
        "Critical: h0/rail0: link has flapped 9 times &lt;within&gt; the past hour"
        " (gpu-7, incident 7)"
    )
    (attachment,) = reported["attachments"]
    assert attachment["text"].splitlines() == [
        "since 2023-11-14T22:13:20.000Z",
        *(f"seen {number}" for number in range(3, 8)),
        "explains 1 more, for example a&lt;b",
        "jobs: llm, eval",
        "→ reseat &amp; clean",
    ]
    assert not attachment["mrkdwn_in"]


def test_slack_hears_that_it_is_over_in_another_colour() -> None:
    there, over = (
        render.slack(kind, incident(), GPU_7) for kind in (ChangeKind.PAGE, ChangeKind.CLEAR)
    )
    assert over["text"].startswith("Resolved: ")
    assert "reseat" not in over["attachments"][0]["text"]
    assert there["attachments"][0]["color"] != over["attachments"][0]["color"]


RENAMED = {
    "summary": "spine1: is dead", "remedy": "check its power", "named_by": 8,
    "former_words": ("until 2023-11-14T22:13:20.000Z: leaf0->spine1: loses 5%",), "evidence": (),
}  # fmt: skip


def test_what_an_incident_is_known_as_now_updates_it_and_calls_nobody() -> None:
    reported = incident(**RENAMED)
    event = render.pagerduty(ChangeKind.RENAMED, reported, GPU_7)
    assert event["event_action"] == "trigger"
    assert event["dedup_key"] == render.pagerduty(ChangeKind.PAGE, incident(), GPU_7)["dedup_key"]
    assert event["payload"]["summary"] == "spine1: is dead"
    assert event["payload"]["custom_details"]["formerly"] == list(reported.former_words)
    message = render.slack(ChangeKind.RENAMED, reported, GPU_7)
    assert message["text"] == "Critical, known better now: spine1: is dead (gpu-7, incident 7)"
    assert reported.former_words[0].replace(">", "&gt;") in message["attachments"][0]["text"]
    hook = render.webhook(ChangeKind.RENAMED, reported, GPU_7)
    assert (hook["event"], hook["incident"]["named_by"]) == ("renamed", 8)
    (alert,) = render.alertmanager([reported], GPU_7, T0)
    (before,) = render.alertmanager([incident()], GPU_7, T0)
    assert alert["labels"] == before["labels"], "other labels would be another alert"
    assert alert["annotations"]["formerly"] == reported.former_words[0]


def test_slack_hears_from_when_to_when_it_lasted_in_the_worlds_time() -> None:
    over = incident(state=IncidentState.RESOLVED, resolved_ns=T0 + 90 * S)
    (attachment,) = render.slack(ChangeKind.CLEAR, over, GPU_7, (), 20 * S)["attachments"]
    assert attachment["text"].splitlines()[0] == (
        "from 2023-11-14T22:13:00.000Z to 2023-11-14T22:14:30.000Z: 90 s"
    )


def test_what_came_back_is_told_as_such_with_when_it_did() -> None:
    back = incident(began_ns=T0 + 300 * S, reopened=1, pages=2)
    reported = render.slack(ChangeKind.PAGE, back, GPU_7)
    assert reported["text"].startswith("Critical, reopened: h0/rail0")
    assert reported["attachments"][0]["text"].startswith("since 2023-11-14T22:18:20.000Z\n")
    payload = render.pagerduty(ChangeKind.PAGE, back, GPU_7)["payload"]
    assert payload["timestamp"] == "2023-11-14T22:18:20.000Z"
    assert payload["custom_details"]["reopened"] == 1
    (alert,) = render.alertmanager([back], GPU_7, T0 + 400 * S)
    assert alert["startsAt"] == "2023-11-14T22:18:20.000Z"
    plain = render.plain(back)
    assert (plain["opened"], plain["began"]) == (
        "2023-11-14T22:13:20.000Z", "2023-11-14T22:18:20.000Z",
    )  # fmt: skip
    # Nobody was paged before it came back.
    first = render.slack(ChangeKind.PAGE, incident(reopened=1, pages=1), GPU_7)
    assert first["text"].startswith("Critical: h0/rail0")


def test_slack_hears_who_is_on_it_not_that_it_is_there_again() -> None:
    ann = incident(state=IncidentState.ACKNOWLEDGED, acknowledged_by="ann", comment="cable ordered")
    reported = render.slack(ChangeKind.ACKNOWLEDGED, ann, GPU_7)
    assert reported["text"].startswith(
        "Acknowledged by ann: cable ordered: h0/rail0: link has flapped"
    )
    silent = render.slack(ChangeKind.ACKNOWLEDGED, incident(acknowledged_by="bob"), GPU_7)
    assert silent["text"].startswith("Acknowledged by bob: h0/rail0: link has flapped")


def test_fleets_of_one_name_share_no_keys() -> None:
    namesake = render.FleetName("gpu-7", "0ddba11")
    for kind in (ChangeKind.PAGE, ChangeKind.CLEAR):
        one, other = (render.pagerduty(kind, incident(), each) for each in (GPU_7, namesake))
        assert one["dedup_key"] != other["dedup_key"]
    one, other = (render.alertmanager([incident()], each, T0)[0] for each in (GPU_7, namesake))
    assert one["labels"] != other["labels"]
    assert one["labels"]["cluster"] == other["labels"]["cluster"] == "gpu-7"


@pytest.mark.parametrize("ahead_ns", [37 * S, -2 * S])
def test_pagerduty_is_told_in_the_worlds_time(ahead_ns: int) -> None:
    event = render.pagerduty(ChangeKind.PAGE, incident(), GPU_7, ahead_ns)
    assert event["payload"]["timestamp"] == render.instant(T0 - ahead_ns)


@pytest.mark.parametrize("ahead_ns", [0, 37 * S, -2 * S])
def test_alertmanager_reads_instants_on_its_own_clock(ahead_ns: int) -> None:
    """A live alert ends five minutes from now unless it is sent again; what is over, when it was.
    Fleet time may be ahead of the world's or behind it."""
    now_ns = T0 + 3600 * S
    live, over = incident(), incident(state=IncidentState.RESOLVED, resolved_ns=T0 + 60 * S)
    alerts = render.alertmanager([live, over], GPU_7, now_ns, ahead_ns)
    assert [alert["startsAt"] for alert in alerts] == [render.instant(T0 - ahead_ns)] * 2
    assert [alert["endsAt"] for alert in alerts] == [
        render.instant(now_ns + 300 * S - ahead_ns),
        render.instant(T0 + 60 * S - ahead_ns),
    ]
    assert alerts[0]["annotations"]["description"].startswith("seen 0; seen 1")
    assert alerts[0]["annotations"]["repeats"] == "2"
    bare = render.alertmanager([incident(evidence=(), jobs=())], GPU_7, now_ns)[0]
    assert {"description", "jobs"}.isdisjoint(bare["annotations"])


def test_instants_are_utc_to_the_millisecond() -> None:
    assert render.instant(T0 + 7_999_999) == "2023-11-14T22:13:20.007Z"
    assert render.instant(T0 + S - 1) == "2023-11-14T22:13:20.999Z"


def test_what_is_not_over_has_no_end() -> None:
    body = render.plain(incident(resolved_ns=5))
    assert (body["resolved_ns"], body["cause"], body["silenced"]) == (None, None, False)


def test_a_webhook_gets_everything_that_is_known() -> None:
    over = incident(state=IncidentState.RESOLVED, resolved_ns=T0 + S, cause=3)
    body = json.loads(json.dumps(render.webhook(ChangeKind.CLEAR, over, GPU_7, [incident()])))
    assert (body["version"], body["event"], body["key"]) == (1, "clear", "syntony/gpu-7/5ca1ab1e/7")
    assert body["incident"]["resolved_ns"] == T0 + S
    assert body["incident"]["resolved"] == "2023-11-14T22:13:21.000Z"
    assert body["incident"]["cause"] == 3
    assert body["incident"]["evidence"][0] == "seen 0"
    assert [child["number"] for child in body["explains"]] == [7]


@pytest.mark.parametrize("subject", ["leaf0->spine1", "leaf0--spine1", "spine1", "h3"])
def test_alertmanagers_labels_are_identity_whatever_changes(subject: str) -> None:
    """Counts and instants are annotations: labels that change are another alert."""
    one, other = (
        render.alertmanager([each], GPU_7, T0)[0]
        for each in (incident(subject=subject), incident(subject=subject, repeats=9, value=3.0))
    )
    assert one["labels"] == other["labels"]
    assert "host" not in one["labels"], "no NIC"
    assert render.alertmanager([incident()], GPU_7, T0)[0]["labels"]["nic"] == "rail0"


def test_slack_has_no_line_for_jobs_where_none_is_hit() -> None:
    (attachment,) = render.slack(ChangeKind.PAGE, incident(jobs=()), GPU_7, [])["attachments"]
    assert "jobs" not in attachment["text"]


def test_slack_has_the_words_of_before_the_last_change() -> None:
    """All earlier ones are in `incidents show`."""
    former = ("until 1: leaf0 or spine1", "until 2: leaf0", "until 3: leaf0->spine1")
    message = render.slack(ChangeKind.RENAMED, incident(former_words=former), GPU_7)
    (attachment,) = message["attachments"]
    assert [line for line in attachment["text"].splitlines() if line.startswith("until")] == [
        "until 3: leaf0-&gt;spine1"
    ]
