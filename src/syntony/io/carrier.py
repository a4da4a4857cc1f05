"""Watches links: netlink events for latency, the kernel's carrier counters for completeness.

The kernel delivers the events of some devices at once and throttles those of others, physical NICs
among them, to about one a second: an outage of 1 ms shows as no event at all. Its carrier counters
miss nothing, so those of throttled devices are read every 10 ms from descriptors kept open
(docs/decisions/0065).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from syntony.errors import MissingError
from syntony.io import netlink, rtnetlink
from syntony.io.closing import Closing
from syntony.io.rtnetlink import LinkInfo
from syntony.model import MS
from syntony.model.paths import LinkEvent

POLL_NS = 10 * MS
"""Between two reads of a throttled device's counter: half of the 20 ms within which a flap is to be
noticed; a read costs 2 µs."""
SYSFS_NET = Path("/sys/class/net")
_RECEIVE_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20
"""Of the socket: thousands of link messages, for hosts where containers come and go."""
_ANSWER_S = 2.0
_LOOPBACK = "lo"


class CarrierWatch(Closing):
    """Every link of the network namespace it is made in, or those named.

    Call `poll` when `fileno` is readable and no later than `deadline_ns`. A link is known by its
    name: one that is renamed is gone under the old name (no carrier, not up, no addresses) and
    present under the new one. Not thread-safe.

    Args:
        nics: names to watch, whether or not they exist yet; None watches all but loopback.
        poll_ns: between two reads of a throttled device's counter.
    """

    def __init__(self, nics: Iterable[str] | None = None, *, poll_ns: int = POLL_NS) -> None:
        self._tracked = None if nics is None else frozenset(nics)
        self._poll_ns = poll_ns
        self._next_ns = 0
        self._links: dict[int, LinkInfo] = {}
        self._addresses: dict[int, dict[str, None]] = {}
        self._counters: dict[int, tuple[int, bytes]] = {}
        self._reported: dict[str, LinkEvent] = {}
        self._seq = 0
        self._stale = True
        self._changed = False
        self.overruns = 0
        """Times that events were lost in the socket and the whole state was read again."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.setblocking(False)
        groups = rtnetlink.RTMGRP_LINK | rtnetlink.RTMGRP_IPV4_IFADDR | rtnetlink.RTMGRP_IPV6_IFADDR
        self._socket.bind((0, groups))

    def close(self) -> None:
        """Idempotent."""
        for ifindex in list(self._counters):
            self._forget_counter(ifindex)
        self._socket.close()

    def fileno(self) -> int:
        """Readable when the kernel has reported a change."""
        return self._socket.fileno()

    @property
    def deadline_ns(self) -> int | None:
        """CLOCK_MONOTONIC by which `poll` is to be called; None: only when readable."""
        if self._stale:
            return 0
        return self._next_ns if self._counters else None

    def poll(self, now_ns: int) -> list[LinkEvent]:
        """What changed since the last call; the first call reports every link, and which of those
        named are missing. Raises `WireError`: the kernel says what this version does not
        understand."""
        self._listen()
        if self._stale:
            self._read_all()
        if self._counters and now_ns >= self._next_ns:
            self._next_ns = now_ns + self._poll_ns
            self._read_counters()
        return self._differences(now_ns) if self._changed else []

    # --- from the kernel ---

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES, socket.MSG_TRUNC)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                self._stale = True
                continue
            for message in netlink.messages(data):
                self._apply(message)

    def _apply(self, message: netlink.NetlinkMessage) -> None:
        self._changed = True
        match message.type:
            case rtnetlink.RTM_NEWLINK | rtnetlink.RTM_DELLINK:
                link = rtnetlink.parse_link(message.payload)
                if link is not None and message.type == rtnetlink.RTM_NEWLINK:
                    self._apply_link(link)
                elif link is not None:
                    self._forget_link(link.ifindex)
            case rtnetlink.RTM_NEWADDR | rtnetlink.RTM_DELADDR:
                self._apply_address(message)

    def _apply_link(self, link: LinkInfo) -> None:
        before = self._links.get(link.ifindex)
        if before is not None and before.name != link.name:
            self._forget_counter(link.ifindex)
        self._links[link.ifindex] = link
        if link.throttled and self._is_tracked(link.name):
            self._open_counter(link)
        else:
            self._forget_counter(link.ifindex)

    def _forget_link(self, ifindex: int) -> None:
        self._links.pop(ifindex, None)
        self._addresses.pop(ifindex, None)
        self._forget_counter(ifindex)

    def _apply_address(self, message: netlink.NetlinkMessage) -> None:
        address = rtnetlink.parse_address(message.payload)
        if address is None or not address.is_global:
            return
        known = self._addresses.setdefault(address.ifindex, {})
        if message.type == rtnetlink.RTM_NEWADDR:
            known[address.text] = None
        else:
            known.pop(address.text, None)

    def _is_tracked(self, name: str) -> bool:
        return name != _LOOPBACK if self._tracked is None else name in self._tracked

    # --- what is read ---

    def _read_all(self) -> None:
        """Read all links again: at the start, and after events were lost."""
        for ifindex in list(self._links):
            self._forget_link(ifindex)
        self._addresses.clear()
        self._stale = False
        self._ask(rtnetlink.RTM_GETLINK, netlink.NLM_F_DUMP, bytes(rtnetlink.LINK_HEADER.size))
        self._ask(rtnetlink.RTM_GETADDR, netlink.NLM_F_DUMP, bytes(rtnetlink.LINK_HEADER.size))

    def _read_counters(self) -> None:
        for ifindex, (descriptor, before) in list(self._counters.items()):
            try:
                now = os.pread(descriptor, 16, 0)
            except OSError:  # the device is going; its last message is on the way
                self._forget_counter(ifindex)
                continue
            if now != before:
                self._counters[ifindex] = (descriptor, now)
                self._ask_link(ifindex)

    def _ask_link(self, ifindex: int) -> None:
        requested = rtnetlink.LINK_HEADER.pack(socket.AF_UNSPEC, 0, ifindex, 0, 0)
        self._ask(rtnetlink.RTM_GETLINK, 0, requested)

    def _ask(self, kind: int, flags: int, payload: bytes) -> None:
        """Ask, and take what comes, events among it, until the answer is complete."""
        self._seq += 1
        self._socket.send(netlink.request(kind, flags, self._seq, payload))
        self._socket.settimeout(_ANSWER_S)
        try:
            while not self._answered(self._socket.recv(_RECEIVE_BYTES), flags):
                pass
        except TimeoutError as error:
            raise MissingError("the kernel does not answer rtnetlink; is it blocked?") from error
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.overruns += 1
            self._stale = True
        finally:
            self._socket.setblocking(False)

    def _answered(self, data: bytes, flags: int) -> bool:
        done = False
        for message in netlink.messages(data):
            ours = message.seq == self._seq
            self._apply(message)
            ended = message.type in {netlink.NLMSG_DONE, netlink.NLMSG_ERROR}
            done |= ours and (ended or not flags & netlink.NLM_F_DUMP)
        return done

    def _open_counter(self, link: LinkInfo) -> None:
        if link.ifindex in self._counters:
            return
        path = SYSFS_NET / link.name / "carrier_changes"
        with contextlib.suppress(OSError):  # renamed or gone meanwhile, or sysfs is not mounted
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._counters[link.ifindex] = (descriptor, str(link.carrier_changes).encode() + b"\n")

    def _forget_counter(self, ifindex: int) -> None:
        descriptor, _ = self._counters.pop(ifindex, (-1, b""))
        if descriptor >= 0:
            os.close(descriptor)

    # --- to the caller ---

    def _differences(self, now_ns: int) -> list[LinkEvent]:
        self._changed = False
        present = {link.name: link for link in self._links.values() if self._is_tracked(link.name)}
        absent = [name for name in (*self._reported, *(self._tracked or ())) if name not in present]
        events = [self._removed(name, now_ns) for name in dict.fromkeys(absent)]
        events += [self._event(link, now_ns) for link in present.values()]
        fresh = [event for event in events if not _same(self._reported.get(event.nic), event)]
        self._reported.update((event.nic, event) for event in fresh)
        if self._tracked is None:  # names of containers' links come and go
            for name in absent:
                del self._reported[name]
        return fresh

    def _removed(self, name: str, now_ns: int) -> LinkEvent:
        reported = self._reported.get(name)
        return LinkEvent(
            at_ns=now_ns,
            nic=name,
            carrier=False,
            admin_up=False,
            addresses=(),
            carrier_down_count=0 if reported is None else reported.carrier_down_count,
        )

    def _event(self, link: LinkInfo, now_ns: int) -> LinkEvent:
        return LinkEvent(
            at_ns=now_ns,
            nic=link.name,
            carrier=link.carrier,
            admin_up=link.admin_up,
            addresses=tuple(self._addresses.get(link.ifindex, ())),
            carrier_down_count=link.carrier_down_count,
            ifindex=link.ifindex,
        )


def _same(reported: LinkEvent | None, event: LinkEvent) -> bool:
    return reported is not None and (
        (reported.carrier, reported.admin_up, reported.addresses, reported.carrier_down_count)
        == (event.carrier, event.admin_up, event.addresses, event.carrier_down_count)
    )
