"""Command-line tools that do for us what the kernel offers no quick way to do."""

from __future__ import annotations

import subprocess

from syntony.errors import MissingError

_PATIENCE_S = 2.0


def run_tool(*words: str, what: str, package: str, text: str = "") -> str:
    """What it prints.

    Args:
        what: it is for, to be named when it fails.
        package: of Debian, that has the tool.
        text: for its standard input.

    Raises:
        MissingError: it is not installed, does not answer, or refuses.
    """
    try:
        done = subprocess.run(
            words, input=text, text=True, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError as error:
        raise MissingError(
            f"no {words[0]} here, for {what}; install with: apt install {package}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{words[0]} does not answer within {_PATIENCE_S:g} s") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise MissingError(f"{words[0]} refuses {what}: {reason}")
    return done.stdout
