"""Ranks in a lab's hosts, on one of their NICs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from syntony.io.audit.collective import SCRIPT, RankCommand
from syntony.lab.client import Lab


class LabRanks:
    """See `syntony.io.audit.collective.Ranks`.

    Args:
        python: an interpreter that has what the script needs.
        nic: of every host.
        script: the program; PyTorch's rank by default.
    """

    def __init__(self, lab: Lab, python: str, nic: str = "rail0", script: Path = SCRIPT) -> None:
        self._lab, self._python, self._nic, self._script = lab, python, nic, script
        self._addresses = lab.addresses(4)

    def rank(self, host: str, words: Sequence[str], reported: Mapping[str, str]) -> RankCommand:
        local = {**reported, "GLOO_SOCKET_IFNAME": self._nic}
        exported = [f"{name}={value}" for name, value in local.items()]
        argv = ["env", *exported, self._python, "-u", str(self._script), *words]
        return RankCommand(tuple(self._lab.enter_argv(host, argv)), {})

    def address(self, host: str) -> str:
        return self._addresses[f"{host}/{self._nic}"]
