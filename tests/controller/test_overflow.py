"""Losses under a job: whose page they are, by whether they come with packets that wait."""

from __future__ import annotations

import pytest
from tests.controller.judged import Control, finding

from syntony.model.findings import Queue, QueueFlow

LINK = "leaf0->spine0"


def crowd(control: Control, *links: str) -> None:
    """The job `far` sends, and packets wait for these."""
    flow = QueueFlow(job="far", pair="h0/rail0->h2/rail0", rate_bps=10**10)
    queues = tuple(
        Queue(
            component=link, delay_ns=400_000.0, since_ns=0, confidence=0.9, alternatives=(),
            pairs=(flow.pair,), flows=(flow,),
        )
        for link in links
    )  # fmt: skip
    control.slas = control.slas._replace(queues=queues)


def lossy(control: Control, overflow: str, loss: float = 0.002) -> None:
    control.findings = (finding(LINK, "link", loss=loss, overflow=overflow),)


@pytest.mark.parametrize(
    ("overflow", "after_s", "pages"),
    [("none", 10, 1), ("open", 58, 0), ("open", 62, 1), ("all", 200, 0), ("", 10, 1)],
)
def test_a_loss_without_congestion(
    control: Control, overflow: str, after_s: int, pages: int
) -> None:
    crowd(control)
    lossy(control, overflow)
    control.tick(1 + after_s // 2)
    assert control.pages() == [f"link-loss {LINK}"] * pages


@pytest.mark.parametrize(("overflow", "pages"), [("open", 1), ("all", 0)])
def test_senders_slow_down_before_a_queue_loses_so_much(
    control: Control, overflow: str, pages: int
) -> None:
    """For a second it may, if it is known that losses come with it."""
    crowd(control)
    lossy(control, "all", loss=0.004)
    control.tick(5)
    lossy(control, overflow, loss=0.06)
    control.tick(5)
    assert control.pages() == [f"link-loss {LINK}"] * pages


@pytest.mark.parametrize("overflow", ["open", "all", "none"])
def test_where_no_job_sends_nothing_overflows(control: Control, overflow: str) -> None:
    control.slas = control.slas._replace(queues=(), jobs={})
    lossy(control, overflow)
    control.tick(5)
    assert control.pages() == [f"link-loss {LINK}"]


@pytest.mark.parametrize(
    ("overflow", "words"),
    [
        ("open", ["or its cable"]),
        ("all", ["since they are lost while packets wait"]),
        ("none", []),
        ("", []),
    ],
)
def test_congestion_says_what_overflows(control: Control, overflow: str, words: list[str]) -> None:
    crowd(control, LINK)
    lossy(control, overflow)
    control.tick(20)
    own = [f"link-loss {LINK}"] if overflow == "none" else []
    assert sorted(control.pages()) == [f"congestion {LINK}", *own]
    (reported,) = [each for each in control.live_incidents() if each["rule"] == "congestion"]
    lines = [line for line in reported["evidence"] if "0.200% of its packets are lost" in line]
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * len(words)


def test_a_cable_is_told_when_the_queue_turns_out_not_to_be_it(control: Control) -> None:
    crowd(control, LINK)
    lossy(control, "open")
    control.tick(20)
    assert control.pages() == [f"congestion {LINK}"]
    lossy(control, "none")
    control.tick(5)
    assert control.pages() == [f"congestion {LINK}", f"link-loss {LINK}"]
    control.findings = ()
    crowd(control)
    control.tick(60)
    assert control.live() == {}
    assert len(control.pages()) == 2


def test_a_job_that_waits_elsewhere_does_not_excuse_a_cable(control: Control) -> None:
    crowd(control, "spine0->leaf0")
    lossy(control, "none")
    control.tick(5)
    assert f"link-loss {LINK}" in control.pages()
