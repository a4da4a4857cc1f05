"""nftables, by its own tool: one text, one transaction."""

from __future__ import annotations

from syntony.io.tool import run_tool


def run_nft(text: str, what: str) -> None:
    """All of it or nothing, in this network namespace.

    Args:
        text: as for `nft -f`.
        what: it is for, to be named when it fails.

    Raises:
        MissingError: no nft, or it refuses.
    """
    run_tool("nft", "-f", "-", what=what, package="nftables", text=text)
