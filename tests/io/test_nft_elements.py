"""Elements of sets and maps, as nft itself lists them afterwards: in a private namespace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.io.namespace import run_alone

from syntony.io.nft_elements import AT_ONCE, Element, NftElements, concatenated

pytestmark = pytest.mark.lab

TABLE = """
table inet t {
    set flat { type inet_service; flags timeout; }
    set pairs { typeof ip saddr . tcp sport; }
    map names { typeof ip6 saddr . tcp sport : ip6 saddr; }
}
"""
V4, V6, PORT = bytes([10, 0, 0, 1]), bytes(15) + b"\1", (80).to_bytes(2)


def nft(*words: str, text: str = "") -> str:
    return subprocess.run(
        ["nft", *words], input=text, check=True, capture_output=True, text=True
    ).stdout


def listed(kind: str, name: str) -> str:
    _, _, found = nft("list", kind, "inet", "t", name).partition("elements = { ")
    return " ".join(found.split()).removesuffix(" } } }")


def what_is_added_and_deleted_is_what_nft_lists() -> None:
    nft("-f", "-", text=TABLE)
    table = NftElements("t")
    pair, name = concatenated([V4, PORT]), concatenated([V6, PORT])
    table.change([(True, [Element("pairs", pair), Element("names", name, V6)])])
    assert listed("set", "pairs") == "10.0.0.1 . 80"
    assert listed("map", "names") == "::1 . 80 : ::1"
    table.change([(True, [Element("flat", PORT, timeout_ms=60_000)])])
    assert listed("set", "flat").startswith("80 timeout 1m expires")
    table.change([(False, [Element("names", name)])])
    assert not listed("map", "names")
    table.close()


def all_of_it_or_nothing() -> None:
    nft("-f", "-", text=TABLE)
    table = NftElements("t")
    pair = concatenated([V4, PORT])
    with pytest.raises(OSError, match=r".+"):
        table.change([(True, [Element("pairs", pair)]), (False, [Element("flat", PORT)])])
    assert not listed("set", "pairs")
    table.change([(True, [Element("pairs", pair)])])
    assert listed("set", "pairs"), "a refusal is not the end"
    many = [concatenated([V4, port.to_bytes(2)]) for port in range(1, 3 * AT_ONCE + 2)]
    table.change([(True, [Element("pairs", each) for each in many])])
    assert listed("set", "pairs").count("10.0.0.1") == len(many)
    table.close()


@pytest.mark.parametrize(
    "scenario", [what_is_added_and_deleted_is_what_nft_lists, all_of_it_or_nothing]
)
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
