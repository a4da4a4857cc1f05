"""The fake provider's structures as Python knows them, and as C does."""

from __future__ import annotations

import re

from tests.nccl.provider import SOURCES, Machine


def test_a_machine_has_the_same_fields_in_python() -> None:
    text = re.sub(r"/\*.*?\*/", "", (SOURCES / "fake_verbs.h").read_text(), flags=re.DOTALL)
    found = re.search(r"struct fake_machine \{(.*?)\};", text, flags=re.DOTALL)
    assert found is not None
    declared = [
        (name.strip(), 8 if kind == "int64_t" else 4)
        for kind, names in re.findall(r"(int|int64_t) ([\w, ]+);", found[1])
        for name in names.split(",")
    ]
    mirrored = [(name, getattr(Machine, name).size) for name, *_ in Machine._fields_]
    assert mirrored == declared
