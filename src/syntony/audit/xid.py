"""The actions that NVIDIA's Xid codes require: the catalogue of driver r590, as large operators
apply it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

from syntony.audit.parse.kernel_log import Xid


class Action(enum.Enum):
    """What to do about a code; the value is the remedy for a person."""

    APPLICATION = "nothing: the application's own fault"
    RESET = "drain and reset the GPU (nvidia-smi -r); reboot if that fails"
    REBOOT = "drain and reboot the host; RMA the GPU if it comes back"
    ISOLATE = "take the host out at once; do not use the GPU again before it is checked"
    WATCH = "watch it: if it repeats, or jobs on the host fail, drain and reset the GPUs"
    UNKNOWN = "look the code up in NVIDIA's Xid catalogue"


class XidRule(NamedTuple):
    action: Action
    meaning: str


_MEANINGS = {
    13: "an application's illegal access or instruction",
    31: "an application's memory page fault",
    43: "an application's channel was stopped",
    45: "an application's channel was torn down after another error",
    48: "a double-bit ECC error",
    54: "the GPU's auxiliary power is not connected",
    61: "the microcontroller hit a breakpoint",
    62: "the microcontroller halted",
    63: "a row was remapped: recorded, the repair comes with the next reset",
    64: "recording a row remapping failed",
    68: "video processor exception",
    69: "graphics engine class error of an application",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "a contained memory error: one application died of it",
    95: "an uncontained memory error",
    109: "a context switch timed out",
    110: "a security fault",
    119: "the GPU's system processor (GSP) does not answer",
    120: "the GPU's system processor (GSP) failed",
    136: "link training of the chip-to-chip link failed",
    140: "an unrecovered ECC error",
    143: "a GPU could not be initialised",
    144: "an NVLink error (SAW)",
    145: "an NVLink error (RLW)",
    146: "an NVLink error (TLW)",
    147: "an NVLink error (TREX)",
    148: "an NVLink error (NVLPW)",
    149: "an NVLink error (NETIR)",
    150: "an NVLink error (MSE)",
    151: "a key rotation error",
    154: "the driver says that recovery needs an action",
    155: "an NVLink software error",
    156: "a resource was retired",
    158: "the GPU's fatal timeout",
    168: "a fault of the GPU's memory subsystem",
}
_APPLICATION = frozenset({13, 31, 43, 45, 63, 68, 69, 92, 94})
_RESET = frozenset({48, 61, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147,
                    148, 149, 150, 154, 155, 156, 158})  # fmt: skip
_REBOOT = frozenset({79, 151, 168})
_ISOLATE = frozenset({54})
_SWITCH_HARMLESS = frozenset({20001, 11012, 24001, 24002, 24003, 22013})
"""NVSwitch errors that NVIDIA's fabric manager guide lists as non-fatal and correctable."""
_RECOVERY = 154
_CHANGED = re.compile(
    r"recovery action changed from .*? to (?:0x[0-9a-f]+ )?\(([^)]{1,60})\)", re.IGNORECASE
)
_SEVERITY = re.compile(r"SXid[^,]{1,60},\s*(Fatal|Non-fatal)\b", re.IGNORECASE)


def latest(found: Iterable[Xid]) -> tuple[Xid, ...]:
    """Keep one error for each code and device: of code 154 (recovery action changed) and of fatal
    ones the last, of others the first."""
    kept: dict[tuple[str, int], Xid] = {}
    for each in found:
        place = (each.bus, each.code)
        if each.code == _RECOVERY or place not in kept or _fatal(each):
            kept[place] = each
    return tuple(kept.values())


def action_of(error: Xid) -> XidRule:
    """The meaning of an error and the action that it requires; an NVSwitch's error (SXid) says
    itself whether it is fatal."""
    if error.switch:
        return _of_switch(error)
    if error.code == _RECOVERY and (match := _CHANGED.search(error.text)):
        return _recovery(match[1])
    meaning = _MEANINGS.get(error.code, "an error of the GPU's driver")
    for codes, action in (
        (_APPLICATION, Action.APPLICATION),
        (_RESET, Action.RESET),
        (_REBOOT, Action.REBOOT),
        (_ISOLATE, Action.ISOLATE),
    ):
        if error.code in codes:
            return XidRule(action, meaning)
    return XidRule(Action.UNKNOWN, meaning)


def _of_switch(error: Xid) -> XidRule:
    fatal = _fatal(error)
    if fatal is None:
        fatal = error.code not in _SWITCH_HARMLESS
    if fatal:
        return XidRule(Action.RESET, "a fatal NVSwitch error: an NVLink or the switch failed")
    if error.code in _SWITCH_HARMLESS:
        return XidRule(Action.APPLICATION, "a correctable NVSwitch error")
    return XidRule(Action.WATCH, "a non-fatal NVSwitch error: an access or a link failed once")


def _fatal(error: Xid) -> bool | None:
    """An NVSwitch's own word; None where the line does not say."""
    match = _SEVERITY.search(error.text) if error.switch else None
    return match[1].lower() == "fatal" if match else None


def _recovery(action: str) -> XidRule:
    """The driver's own word for what recovery takes (``None``, ``GPU Reset Required``…)."""
    meaning = f"the driver asks for recovery: {action}"
    if action.lower() == "none":
        return XidRule(Action.APPLICATION, "the driver asks for no recovery (any more)")
    rebooting = "reboot" in action.lower()
    return XidRule(Action.REBOOT if rebooting else Action.RESET, meaning)
