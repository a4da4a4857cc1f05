"""Where ranks run: all on this host, or on others over SSH."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from syntony.io.audit.collective import SCRIPT, RankCommand
from syntony.io.audit.ssh import ssh_words

_ASK_S = 10.0


class LocalRanks:
    """All on this host, over loopback: what the machine itself can do.

    Args:
        python: an interpreter that has what the script needs.
        script: the program; PyTorch's rank by default.
    """

    def __init__(self, python: str, script: Path = SCRIPT) -> None:
        self._python, self._script = python, script

    def rank(self, host: str, words: Sequence[str], reported: Mapping[str, str]) -> RankCommand:
        """See `Ranks`. The rank's number is its GPU's, where there are GPUs."""
        local = {
            **reported,
            "GLOO_SOCKET_IFNAME": "lo",
            "LOCAL_RANK": words[0],
            "SYNTONY_HOST": host,
        }
        return RankCommand((self._python, "-u", str(self._script), *words), local)

    @staticmethod
    def address(host: str) -> str:  # noqa: ARG004 - the protocol's
        return "127.0.0.1"


class SshRanks:
    """Each on its host; the script goes over standard input, nothing is left there.

    Args:
        python: an interpreter that has what the script needs, on those hosts.
        interface: what gloo and NCCL's bootstrap use there; empty for what they choose.
        script: the program; PyTorch's rank by default.
        ssh: the program and its options (`syntony.io.audit.ssh.ssh_words`).
    """

    def __init__(
        self, python: str, interface: str = "", script: Path = SCRIPT,
        ssh: Sequence[str] = tuple(ssh_words()),
    ) -> None:  # fmt: skip
        self._python, self._interface, self._script = python, interface, script
        self._ssh = tuple(ssh)

    def rank(self, host: str, words: Sequence[str], reported: Mapping[str, str]) -> RankCommand:
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        more = dict.fromkeys(names, self._interface) if self._interface else {}
        remote = [f"{name}={value}" for name, value in {**reported, **more}.items()]
        line = shlex.join(["env", *remote, self._python, "-u", "-", *words])
        return RankCommand((*self._ssh, "--", host, line), {}, self._script)

    def address(self, host: str) -> str:
        """See `Ranks`: what ssh connects to must do, by its own configuration."""
        try:
            done = subprocess.run(
                [*self._ssh, "-G", "--", host], capture_output=True, check=False, text=True,
                timeout=_ASK_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return host.rpartition("@")[2]
        found = (line.split() for line in done.stdout.splitlines())
        names = (words[1] for words in found if words[:1] == ["hostname"] and len(words) == 2)
        return next(names, host.rpartition("@")[2])
