"""IPv6 flow labels rewritten on their way out: a plain TCP flow takes another equal-cost path.

Switches that hash the flow label (most do, RFC 6438) send a flow with another label another way;
the connection's ends never look at it. One nftables table of ours per network namespace, in the
netdev family's egress hook (Linux 5.16); each flow is an element with a timeout, so that if whoever
refreshes it dies, the kernel itself lets the flow go back to the label it had.
"""

from __future__ import annotations

from collections.abc import Iterable

from syntony.io.nft import run_nft
from syntony.model.paths import FourTuple

TABLE = "syntony_labels"
_WHAT = "flow labels"
LABELS = tuple(0x5A000 + number for number in range(1, 9))
"""Eight draws; values mean nothing to anyone."""


class FlowLabels:
    """Of the network namespace of its maker.

    Args:
        nics: interfaces whose outgoing packets may be rewritten.
        timeout_s: how long a choice lasts unless `choose` repeats it.

    Raises:
        MissingError: no nft, or a kernel without the egress hook.
    """

    def __init__(self, nics: Iterable[str], timeout_s: int = 10) -> None:
        self._timeout_s = timeout_s
        sets = "".join(
            f"set l{number} {{ type ipv6_addr . inet_service . ipv6_addr . inet_service; "
            "flags timeout; }\n"
            for number in range(len(LABELS))
        )
        rules = "".join(
            f"ip6 saddr . tcp sport . ip6 daddr . tcp dport @l{number} ip6 flowlabel set {label}\n"
            for number, label in enumerate(LABELS)
        )
        chains = "".join(
            f'chain out{at} {{ type filter hook egress device "{nic}" priority 0; '
            f"policy accept;\n{rules}}}\n"
            for at, nic in enumerate(nics)
        )
        fresh = f"table netdev {TABLE} {{ }}\ndelete table netdev {TABLE}\n"
        run_nft(f"{fresh}table netdev {TABLE} {{\n{sets}{chains}}}\n", _WHAT)

    def choose(self, flow: FourTuple, draw: int) -> None:
        """The flow's packets carry label number `draw` (any integer) from now on."""
        number = draw % len(LABELS)
        element = f"{flow.local} . {flow.local_port} . {flow.remote} . {flow.remote_port}"
        # In one transaction: no packet goes out with the old label in between. An element is
        # declared first, so that taking it away cannot fail.
        lines = [
            f"{verb} element netdev {TABLE} l{other} {{ {element} }}"
            for other in range(len(LABELS))
            for verb in ("add", "delete")
        ]
        timed = f"{element} timeout {self._timeout_s}s"
        lines.append(f"add element netdev {TABLE} l{number} {{ {timed} }}\n")
        run_nft("\n".join(lines), _WHAT)

    def close(self) -> None:
        """All flows go back to their own labels."""
        run_nft(f"table netdev {TABLE} {{ }}\ndelete table netdev {TABLE}\n", _WHAT)
