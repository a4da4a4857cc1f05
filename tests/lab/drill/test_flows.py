"""Lines of `ss`, as one printed them, and anything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syntony.lab.drill.flows import HostFlow, parse_ss

PRINTED = """\
0      0      10.10.0.3:51388 10.10.0.1:29600 bbr wscale:10,10 rto:204 rtt:0.067/0.038 cwnd:11 \
bytes_sent:4 bytes_acked:5 bytes_received:32243876 segs_out:3636 app_limited rcv_rtt:1
0      0      10.10.0.3:29600 10.10.1.3:54584 bbr wscale:10,10 rto:204 bytes_received:4 segs_out:1
0      438856 [::ffff:10.10.0.3]:29600 [fd73::1]:33362 bbr wscale:10,10 bytes_sent:32377092 \
bytes_retrans:2896 bytes_acked:32067164
Cannot open netlink socket: x
"""


def test_parse() -> None:
    assert parse_ss(PRINTED) == [
        HostFlow("10.10.0.3", 51388, "10.10.0.1", 29600, 4),
        HostFlow("10.10.0.3", 29600, "10.10.1.3", 54584, 0),
        HostFlow("10.10.0.3", 29600, "fd73::1", 33362, 32377092),
    ]


@given(st.text(max_size=300))
def test_anything_else_is_no_connection(text: str) -> None:
    assert all(isinstance(flow, HostFlow) for flow in parse_ss(text))
