"""1.1 Software: services, security modules and containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.checks.drivers import service_state
from syntony.audit.facts import AbsentError, FactError, Facts
from syntony.audit.gpus import has_nvidia
from syntony.audit.result import ComparedValue, Result, Status, Suspect

Service = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9@:._|-]{0,254}$")]
"""A unit's name, or several between ``|``; never an option of a command."""


class NodeServices(HostCheck):
    """The daemons that a node of this fleet runs are active.

    Expected results: every service that the spec lists is active, one of the alternatives in
    ``a|b`` is enough; what runs of the well-known ones equal to the expected value.
    """

    id = "sw.services"
    section = Section.SOFTWARE
    reads = ("$ systemctl is-active SERVICE", "$ systemctl list-units --failed --plain --no-legend")
    meaning = "the scheduler, the container runtime or a helper of the GPUs does not run"
    remedy = "systemctl restart it; read journalctl -u for why it stopped"
    suspect = Suspect.CONFIG
    keys = (Key("sw.services", "well-known services that are active"),)

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        required: tuple[Service, ...] = ()
        """``slurmd|kubelet``, ``chrony|chronyd``"""

    limits: Input

    def asks(self) -> tuple[str, ...]:
        named = [name for each in self.limits.required for name in each.split("|")]
        requested = (f"$ systemctl is-active {name}" for name in dict.fromkeys([*_KNOWN, *named]))
        return (*requested, self.reads[1])

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            service_state(host, _KNOWN[0])
        except AbsentError as error:
            yield self.skip(host, str(error))
            return
        for alternatives in self.limits.required:
            states = {name: service_state(host, name) for name in alternatives.split("|")}
            got = ", ".join(f"{name} {state}" for name, state in states.items())
            yield self.verdict(
                "active" in states.values(), host, got, f"{alternatives} active",
                "systemctl is-active", at=alternatives,
            )  # fmt: skip
        active = [name for name in _KNOWN if service_state(host, name) == "active"]
        yield self.reading(
            host, "sw.services", " ".join(active) or "none", evidence="systemctl is-active"
        )
        yield self._failed(host)

    def _failed(self, host: Facts) -> Result:
        text = host.run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
        names = [line.split()[0] for line in text.splitlines() if line.split()]
        got = " ".join(names[:5]) or "none"
        return self.verdict(
            not names, host, got, "none", "systemctl list-units --failed", at="failed units",
            bad=Status.WARN,
        )  # fmt: skip


_KNOWN = ("slurmd", "kubelet", "containerd", "docker", "lldpd", "chronyd", "chrony", "ntpd",
          "systemd-timesyncd", "ptp4l", "nvidia-persistenced", "nvidia-fabricmanager", "opensmd",
          "sssd", "munge", "irqbalance", "syntony-agent", "syntony-reactor")  # fmt: skip


class Containers(HostCheck):
    """Security modules and the GPU container toolkit are as in the fleet.

    Expected results: SELinux's mode and the toolkit's version equal to the expected values; with an
    NVIDIA GPU and a container runtime, the toolkit is installed.
    """

    id = "sw.container"
    section = Section.SOFTWARE
    reads = ("$ getenforce", "$ nvidia-ctk --version", "$ systemctl is-active SERVICE")
    meaning = "containers do not see the GPUs, or are denied what they need"
    remedy = "install nvidia-container-toolkit and run nvidia-ctk runtime configure"
    suspect = Suspect.CONFIG
    keys = (
        Key("sw.selinux", "SELinux's mode, or absent"),
        Key("sw.container-toolkit", "version of the NVIDIA container toolkit"),
    )

    def asks(self) -> tuple[str, ...]:
        return (*self.reads[:2], "$ systemctl is-active containerd", "$ systemctl is-active docker")

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        try:
            mode = host.run("getenforce").strip()
        except AbsentError:
            mode = "absent"
        yield self.reading(host, "sw.selinux", mode, evidence="getenforce")
        if has_nvidia(host):
            yield self._toolkit(host)

    def _toolkit(self, host: Facts) -> Result | ComparedValue:
        try:
            text = host.run("nvidia-ctk", "--version")
        except AbsentError:
            return self._without(host)
        match = re.search(r"version\s+v?(\d+(?:\.\d+)+)", text)
        if match is None:
            return self.unknown(host, "`nvidia-ctk --version` reports no version", "toolkit")
        return self.reading(
            host, "sw.container-toolkit", match[1], "toolkit", evidence="nvidia-ctk --version"
        )

    def _without(self, host: Facts) -> Result:
        try:
            states = (service_state(host, name) for name in ("containerd", "docker"))
            runtime = "active" in states
        except FactError as error:
            return self.unknown(host, str(error), "toolkit")
        if not runtime:
            return self.skip(host, "no container runtime here", "toolkit")
        return self.verdict(False, host, "not installed", "nvidia-ctk", "nvidia-ctk", at="toolkit")
