"""The probe keys of one host: one for each host with which it exchanges probes. Pure."""

from __future__ import annotations

from syntony.io.probe_key import KEY_BYTES
from syntony.io.probe_records import PeerKeys
from syntony.wire.probes import ProbeKeys

MAX_PEERS = 4096
"""NICs: far above a plan's."""
_U32 = (1 << 32) - 1


class Keyring:
    """Keys as the controller last sent them, and those of peers that it no longer names."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[int, bytes]] = {}
        """NIC → epoch → key."""
        self.epochs: tuple[int, ...] = ()
        """Accepted epochs; empty before any are known."""
        self.sending = 0

    def take(self, sent: ProbeKeys) -> dict[int, PeerKeys] | None:
        """Set the keys of each remote NIC; None if they are invalid: then nothing has changed. A
        peer that the plan no longer names may not have received that plan yet: its keys stay as
        long as one of them has the sending epoch."""
        if not _makes_sense(sent):
            return None
        fresh = {
            nic: dict(zip(sent.epochs, pair.keys, strict=True))
            for pair in sent.pairs
            for nic in pair.nics
        }
        for nic, known in self._keys.items():
            accepted = {epoch: key for epoch, key in known.items() if epoch in sent.epochs}
            if nic not in fresh and sent.sending in accepted and len(fresh) < MAX_PEERS:
                fresh[nic] = accepted
        self._keys, self.epochs, self.sending = fresh, sent.epochs, sent.sending
        return {nic: self._peer(keys) for nic, keys in fresh.items()}

    def _peer(self, keys: dict[int, bytes]) -> PeerKeys:
        others = [(epoch, key) for epoch, key in keys.items() if epoch != self.sending]
        return PeerKeys((self.sending, keys[self.sending]), others[0] if others else None)


def _makes_sense(sent: ProbeKeys) -> bool:
    nics = [nic for pair in sent.pairs for nic in pair.nics]
    return (
        1 <= len(sent.epochs) <= 2
        and len(set(sent.epochs)) == len(sent.epochs)
        and sent.sending in sent.epochs
        and all(0 < epoch <= _U32 for epoch in sent.epochs)
        and len(nics) <= MAX_PEERS
        and all(0 < nic <= _U32 for nic in nics)
        and all(
            len(pair.keys) == len(sent.epochs) and all(len(key) == KEY_BYTES for key in pair.keys)
            for pair in sent.pairs
        )
    )
