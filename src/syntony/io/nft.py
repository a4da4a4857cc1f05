"""nftables, by its own tool: one text, one transaction."""

from __future__ import annotations

import subprocess

from syntony.errors import MissingError

_PATIENCE_S = 2.0


def run_nft(text: str, what: str) -> None:
    """All of it or nothing, in this network namespace.

    Args:
        text: as for `nft -f`.
        what: it is for, to be named when it fails.

    Raises:
        MissingError: no nft, or it refuses.
    """
    try:
        done = subprocess.run(
            ["nft", "-f", "-"],
            input=text,
            text=True,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingError(f"{what} need nft; install with: apt install nftables") from error
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"nft does not answer within {_PATIENCE_S:g} s") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise MissingError(f"nft refuses {what}: {reason}")
