"""The kernel's byte code for "a segment of one of these flows that carries a sampled byte". Pure.

Sampled are the bytes whose TCP sequence number is a multiple of a power of two, by flow. That
follows from the header alone and does not depend on how the stream is cut into segments, which
offloads do differently at both ends. A packet that carries none costs about 25 instructions; only
the others are compared with the flows' ports. Addresses are left to the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from syntony.wire.segments import MAX_FLOWS, MAX_SHIFT

SNAPLEN = 128
"""Bytes kept of a packet: the longest headers of IP and TCP are 120."""
MAX_WORDS = 2 * MAX_FLOWS
"""Ports in one filter; the kernel takes 4,096 instructions."""
_GROUP = 200
"""Ports between two tails: conditional jumps reach 255 instructions."""
_OP = struct.Struct("=HBBI")
_LD_H_ABS, _LD_B_ABS, _LD_W_LEN = 0x28, 0x30, 0x80
_LD_W_IND, _LD_B_IND, _LD_MEM, _LDX_MEM, _LDX_IMM, _LDX_MSH = 0x40, 0x50, 0x60, 0x61, 0x01, 0xB1
_ST, _RET, _JA, _JEQ, _JGE, _JSET = 0x02, 0x06, 0x05, 0x15, 0x35, 0x45
_ADD_X, _SUB_X, _SUB_K, _AND_K, _RSH_K, _XOR_X, _TAX = 0x0C, 0x1C, 0x14, 0x54, 0x74, 0xAC, 0x07
_PROTOCOL = 0xFFFFF000
"""SKF_AD_OFF + SKF_AD_PROTOCOL."""
_SYN_OR_RST = 0x06
_LONGEST = 1 << 24
"""Bytes of a segment; a header that says to be longer than its packet would make more."""
_IPV4, _IPV6, _TCP, _FRAGMENT = 0x0800, 0x86DD, 6, 0x3FFF

Program = list[tuple[int, int, int, int]]


def ports_word(sport: int, dport: int) -> int:
    """Ports as they lie in the TCP header."""
    return sport << 16 | dport


def segment_filter(shifts: Mapping[int, int]) -> bytes:
    """A classic BPF program for a packet socket of type SOCK_DGRAM: struct sock_filter[].

    Args:
        shifts: ports (`ports_word`) to the power of two by which bytes are sampled; at most
            `MAX_WORDS`. None: nothing passes.
    """
    if not shifts:
        return _OP.pack(_RET, 0, 0, 0)
    by_shift: dict[int, list[int]] = {}
    for word, shift in sorted(shifts.items()):
        by_shift.setdefault(min(max(shift, 0), MAX_SHIFT), []).append(word)
    program = _changed_bits(_mask(min(by_shift)))
    for shift, words in by_shift.items():
        for begin in range(0, len(words), _GROUP):
            some = words[begin : begin + _GROUP]
            program += [(_JEQ, len(some) - place, 0, word) for place, word in enumerate(some)]
            program += [
                (_JA, 0, 0, 4),
                (_LD_MEM, 0, 0, 1),
                (_JSET, 0, 1, _mask(shift)),
                (_RET, 0, 0, SNAPLEN),
                (_RET, 0, 0, 0),
            ]
    program.append((_RET, 0, 0, 0))
    return b"".join(_OP.pack(*each) for each in program)


def _mask(shift: int) -> int:
    return 0xFFFFFFFF & -(1 << shift)


def _changed_bits(coarsest: int) -> Program:
    """Into M[1]: which bits differ between the number before the segment's first byte and that of
    its last: one above the power of two exactly if there is a multiple of it. Into A: the ports.
    Drops what is no TCP with payload, or has none of the bits of `coarsest`."""
    # The kernel refuses to load memory that was not stored on the way to a RET before the load: the
    # first RET stands before all stores, the second after those of M[0] and M[2].
    drop = "drop"
    steps: list[tuple[int, int | str, int | str, int]] = [
        (_LD_H_ABS, 0, 0, _PROTOCOL),
        (_JEQ, 0, 6, _IPV4),
        (_LD_B_ABS, 0, 0, 9),
        (_JEQ, 0, drop, _TCP),
        (_LD_H_ABS, 0, 0, 6),
        (_JSET, drop, 0, _FRAGMENT),
        (_LDX_MSH, 0, 0, 0),
        (_JA, 0, 0, 4),
        (_JEQ, 0, drop, _IPV6),
        (_LD_B_ABS, 0, 0, 6),
        (_JEQ, 0, drop, _TCP),
        (_LDX_IMM, 0, 0, 40),
        (_LD_B_IND, 0, 0, 13),
        (_JSET, drop, 1, _SYN_OR_RST),
        (_RET, 0, 0, 0),
        (_LD_W_IND, 0, 0, 0),
        (_ST, 0, 0, 2),
        (_LD_W_IND, 0, 0, 4),
        (_SUB_K, 0, 0, 1),
        (_ST, 0, 0, 0),
        (_LD_B_IND, 0, 0, 12),
        (_AND_K, 0, 0, 0xF0),
        (_RSH_K, 0, 0, 2),
        (_ADD_X, 0, 0, 0),
        (_TAX, 0, 0, 0),
        (_LD_W_LEN, 0, 0, 0),
        (_SUB_X, 0, 0, 0),
        (_JEQ, drop, 0, 0),
        (_JGE, drop, 0, _LONGEST),
        (_LDX_MEM, 0, 0, 0),
        (_ADD_X, 0, 0, 0),
        (_XOR_X, 0, 0, 0),
        (_JSET, 1, 0, coarsest),
        (_RET, 0, 0, 0),
        (_ST, 0, 0, 1),
        (_LD_MEM, 0, 0, 2),
    ]
    ends = [place for place, each in enumerate(steps) if each[0] == _RET]

    def jump(to: int | str, place: int) -> int:
        if isinstance(to, int):
            return to
        return next(end for end in ends if end > place) - place - 1

    return [
        (code, jump(jt, place), jump(jf, place), value)
        for place, (code, jt, jf, value) in enumerate(steps)
    ]
