"""The interposer's tables beside those of the installed rdma-core: what posts is watched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native" / "verbs"
HEADER = Path("/usr/include/infiniband/verbs.h")
pytestmark = pytest.mark.skipif(
    not HEADER.is_file(),
    reason=(
        "needs infiniband/verbs.h (Debian: libibverbs-dev): the interposer's tables are NOT "
        "compared with it"
    ),
)

FUNCTION = re.compile(r"\(\*\s*(\w+)\)\s*\(")

ADDRESSES = {"wr_set_ud_addr", "wr_set_xrc_srqn"}
"""Of work requests: neither posts one nor adds bytes."""
LATER = {"wr_atomic_write", "wr_flush"}
"""Not in every header: since rdma-core 44, and later."""
END = {"end_poll"}
OF_NO_QUEUE_PAIR = {"post_srq_recv", "req_notify_cq", "alloc_mw", "dealloc_mw"}
NOT_COUNTED = {"bind_mw"}
"""As docs/reference/verbs-telemetry.md says."""


def functions(struct: str) -> set[str]:
    """Names of the functions in a struct of the header, but for those that nothing calls."""
    found = re.search(rf"struct {struct} \{{\n(.*?)\n\}};", HEADER.read_text(), re.DOTALL)
    assert found is not None, f"{HEADER} has no struct {struct}"
    return {name for name in FUNCTION.findall(found[1]) if not name.startswith("_compat_")}


def replaced(file: str, form: str) -> set[str]:
    return set(re.findall(form, (NATIVE / file).read_text()))


def test_all_that_posts_work_is_watched() -> None:
    ours = replaced("extended.c", r"PATCH\((wr_\w+)\);")
    assert ours | LATER == functions("ibv_qp_ex") - ADDRESSES | LATER


def test_all_that_polls_is_watched() -> None:
    ours = replaced("extended.c", r"cq->(\w+) = \w+;")
    theirs = {name for name in functions("ibv_cq_ex") if not name.startswith("read_")}
    assert ours == theirs - END


def test_all_that_posts_or_polls_by_a_device_is_watched() -> None:
    ours = replaced("watch.c", r"context->ops\.(\w+) = \w+;")
    assert ours == functions("ibv_context_ops") - OF_NO_QUEUE_PAIR - NOT_COUNTED
