"""The sources of an audit: options that `run` and `learn` share, and how to collect the reports."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from syntony.audit.facts import FactError
from syntony.audit.registry import host_checks
from syntony.audit.result import HostReport
from syntony.audit.spec import EMPTY, Spec, limits, parse_spec
from syntony.cli.audit_hosts import host_names
from syntony.cli.fleet import certificate_options
from syntony.cli.output import messages
from syntony.config import read_toml
from syntony.errors import ConfigError, InputError, UsageError
from syntony.model import S, parse_duration_ns

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from syntony.audit.check import HostCheck

_PATH = click.Path(path_type=Path)


class Sources(NamedTuple):
    """Options on hosts and how to reach them."""

    roots: tuple[Path, ...]
    replays: tuple[Path, ...]
    hosts: tuple[str, ...]
    ssh: tuple[str, ...]
    """ssh and its options."""
    sudo: bool
    lab: str | None
    controller: str | None
    tls: tuple[str | None, str | None, str | None]
    local: bool
    spec: Spec
    spec_data: dict[str, Any]
    checks: tuple[str, ...]
    active: bool
    passive: bool
    """Left out, even if named."""
    deadline_ns: int
    name: str | None
    """Name of this host, if it differs from its host name."""

    @property
    def agents(self) -> bool:
        """Whether reports come from agents."""
        return self.lab is not None or self.controller is not None


def ssh_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--ssh-option`` and ``--ssh-config``. It gets `ssh`: words to begin with."""

    @click.option("--ssh-option", "given", multiple=True, metavar="OPTION",
                  help="Passed to ssh as -o OPTION.")  # fmt: skip
    @click.option("--ssh-config", "config", default="", show_default=False, metavar="FILE",
                  help="Configuration file for ssh, in place of your own.")  # fmt: skip
    @wraps(command)
    def wrapper(*args: Any, given: tuple[str, ...], config: str, **kwargs: Any) -> Any:
        from syntony.io.audit.ssh import ssh_words

        if config and not Path(config).is_file():
            raise UsageError(f"--ssh-config {config}: no such file")
        return command(*args, ssh=tuple(ssh_words(given, config)), **kwargs)

    return wrapper


class StepDisplay:
    """Shows the current step as a line on a terminal; nothing elsewhere.

    Args:
        title: shown before each step. bar: a bar that is already shown, to be used.
    """

    def __init__(self, title: str, bar: Progress | None = None) -> None:
        self._title, self._own, self._bar = title, bar is None, bar
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bar is None and messages.is_terminal:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                console=messages.rich, transient=True,
            )  # fmt: skip
            self._bar.start()
        if self._bar is not None:
            self._task = self._bar.add_task(self._title, total=None)
        return self

    def __call__(self, what: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"{self._title}: {what}")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            if self._own:
                self._bar.stop()


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options on hosts, checks and the spec to a command, which gets them as `sources`."""

    @click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="TREE",
        type=_PATH,
        help="A recorded tree with sys/, proc/, etc/, commands/, or its JSON dump; repeatable.",
    )
    @click.option(
        "--replay",
        "replays",
        multiple=True,
        metavar="RUN",
        type=_PATH,
        help="Judge the reports of an earlier run again; repeatable.",
    )
    @click.option(
        "--hosts",
        "hosts",
        multiple=True,
        metavar="LIST",
        help="Hosts to audit over SSH: gpu[001-128],login1, or @FILE with one on each line.",
    )
    @ssh_options
    @click.option("--sudo", is_flag=True, help="Over SSH: read as root, through sudo -n.")
    @click.option(
        "--lab",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="NAME",
        help="Audit through the agents of a lab. [default name: the only lab]",
    )
    @click.option(
        "--controller", metavar="HOST:PORT", help="Audit through the agents of this controller."
    )
    @certificate_options
    @click.option("--local", is_flag=True, help="Audit this host (the default).")
    @click.option(
        "--spec",
        "spec_file",
        type=_PATH,
        metavar="FILE",
        help="Expected values, TOML; `syntony audit learn` writes such a file.",
    )
    @click.option(
        "--check",
        "checks",
        multiple=True,
        metavar="ID",
        help="Only this check, or all with this prefix: sw.os, be.act; repeatable.",
    )
    @click.option("--active", is_flag=True, help="Also run the checks that load the host.")
    @click.option(
        "--passive",
        is_flag=True,
        hidden=True,
        help="Never run the checks that load the host, even if --check names them.",
    )
    @click.option("--name", hidden=True, help="This host's name in the fleet.")
    @click.option("--deadline", default="60s", metavar="TIME", help="Time limit for each host.")
    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return command(*args, sources=_sources(kwargs), **kwargs)

    return wrapper


def _sources(given: dict[str, Any]) -> Sources:
    """Takes its own options out of `given`."""
    spec_file = given.pop("spec_file")
    data = _spec_data(spec_file, from_agent=given.get("report", False)) if spec_file else {}
    tls = (given.pop("ca"), given.pop("cert"), given.pop("key"))
    listed = [name for text in given.pop("hosts") for name in host_names(text)]
    sources = Sources(
        tls=tls,
        hosts=tuple(dict.fromkeys(listed)),
        spec=parse_spec(data, str(spec_file)) if spec_file else EMPTY,
        spec_data=data,
        deadline_ns=parse_duration_ns(given.pop("deadline")),
        **{name: given.pop(name) for name in ("roots", "replays", "ssh", "sudo", "lab",
                                              "controller", "local", "checks", "active",
                                              "passive", "name")},
    )  # fmt: skip
    if sources.lab is not None and sources.controller is not None:
        raise UsageError("give --lab or --controller, not both")
    if sources.deadline_ns < S:
        raise UsageError("the deadline must be 1 s or more")
    chosen_checks(sources)  # misspelt names are reported before hosts are contacted
    return sources


def chosen_checks(sources: Sources) -> list[HostCheck]:
    """The requested checks, with the spec's limits. Raises `UsageError`, `ConfigError`."""
    chosen = host_checks(sources.checks, active=sources.active)
    if sources.passive:
        chosen = tuple(check for check in chosen if not check.active)
    given = limits(sources.spec, chosen)
    return [check(given[check.id]) for check in chosen]


def collect(
    sources: Sources, done: frozenset[str] = frozenset(), bar: Progress | None = None
) -> Iterator[HostReport]:  # fmt: skip
    """Yield a report of every host that the options name, as it arrives, with a progress bar.

    Args:
        done: hosts that a resumed run has already.
        bar: a bar that is already shown, to be used.
    """
    from rich.progress import Progress

    with contextlib.ExitStack() as stack:
        step: Callable[[], None] = lambda: None  # noqa: E731 - no bar off a terminal
        if bar is None and messages.is_terminal:
            bar = stack.enter_context(Progress(console=messages.rich, transient=True))
        if bar is not None:
            known = max(1, len(sources.roots) + len(set(sources.hosts) - done))
            total = None if sources.agents or sources.replays else known
            task = bar.add_task("auditing", total=total)
            step = lambda: bar.advance(task)  # noqa: E731
        for report in _reports(sources, done):
            step()
            yield report


def _reports(sources: Sources, done: frozenset[str]) -> Iterator[HostReport]:
    checks = chosen_checks(sources)
    for path in sources.replays:
        yield from _replayed(path, done)
    for root in sources.roots:
        yield from _tree(root, checks, done, sources.spec)
    hosts = [host for host in sources.hosts if host not in done]
    if hosts:
        from syntony.io.audit.fleet import ask_hosts
        from syntony.io.audit.ssh import SshAudits

        with SshAudits(checks, now_ns, words=sources.ssh, sudo=sources.sudo,
                       deadline_ns=sources.deadline_ns,
                       backend=sources.spec.backend) as audits:  # fmt: skip
            yield from ask_hosts(hosts, audits.ask, now_ns, deadline_ns=sources.deadline_ns + S)
    if sources.agents:
        from syntony.cli.audit_agents import ask_agents

        yield from ask_agents(sources, done)
    if sources.local or not (sources.replays or sources.roots or sources.hosts or sources.agents):
        yield _audit_this_host(checks, sources)


def _spec_data(path: Path, *, from_agent: bool) -> dict[str, Any]:
    """Raises `ConfigError`. `from_agent`: an agent wrote it for this process."""
    try:
        return read_toml(path)
    except ConfigError as error:
        if from_agent:
            raise ConfigError(f"{error}; the agent runs another version: restart it") from error
        raise


def _replayed(path: Path, done: frozenset[str]) -> Iterator[HostReport]:
    from syntony.io.audit.runs import read_run

    _, found = read_run(path)
    newest = {report.host: report for report in found}
    yield from (report for host, report in newest.items() if host not in done)


def _tree(
    root: Path, checks: Sequence[HostCheck], done: frozenset[str], spec: Spec
) -> Iterator[HostReport]:
    from syntony.io.audit.examine import examine_tree
    from syntony.io.audit.host import recorded_host, unpack_dump

    with tempfile.TemporaryDirectory(prefix="syntony-audit-") as folder:
        name = ""
        if root.is_file():
            unpack_dump(root, Path(folder))
            root, name = Path(folder), root.stem
        try:
            host = recorded_host(root, name, spec.backend)
        except FactError as error:
            raise InputError("no-such-tree", str(error)) from error
        if host.host not in done:
            yield examine_tree(host, checks, now_ns())


def _audit_this_host(checks: Sequence[HostCheck], sources: Sources) -> HostReport:
    from syntony.io.audit.examine import DEADLINE_NS, examine_host
    from syntony.io.audit.host import COMMAND_TIMEOUT_NS, this_host

    # Only checks that load the host take long.
    slow = any(check.active for check in checks)
    limit_ns = sources.deadline_ns if slow else min(sources.deadline_ns, DEADLINE_NS)
    # A command that hangs is ended early enough for its check to report it.
    timeout_ns = limit_ns - S // 2 if slow else min(COMMAND_TIMEOUT_NS, limit_ns * 3 // 4)
    host = this_host(timeout_ns, sources.name or "", sources.spec.backend)
    return examine_host(host, checks, now_ns(), deadline_ns=limit_ns)


def now_ns() -> int:
    """UTC by this machine's clock: only to tell when a run was."""
    return round(datetime.now(UTC).timestamp() * S)
