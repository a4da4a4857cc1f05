"""What a release says about itself: its bill of materials and its notes."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY

TOP = DEPLOY.parent
SBOM = runpy.run_path(str(DEPLOY / "packages/web_components.py"))


def bill_of_release() -> dict[str, Any]:
    """A bill with one package of Python, as `release.sh` makes it, and what the console bundles."""
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": "root", "name": "syntony", "version": "0.1.0",
            },
        },
        "components": [
            {
                "type": "library", "bom-ref": "numpy", "name": "numpy", "version": "2.0",
                "purl": "pkg:pypi/numpy@2.0",
            },
        ],
        "dependencies": [{"ref": "root", "dependsOn": ["numpy"]}, {"ref": "numpy"}],
    }  # fmt: skip
    SBOM["add"](bill, json.loads((TOP / "web/package-lock.json").read_text()))
    return bill


def test_the_bill_of_materials_has_what_the_console_bundles() -> None:
    bill = bill_of_release()
    wanted = json.loads((TOP / "web/package.json").read_text())
    names = {each["name"] for each in bill["components"][1:]}
    assert set(wanted["dependencies"]) <= names
    assert not names & set(wanted["devDependencies"])
    refs = [each["bom-ref"] for each in bill["components"]]
    assert bill["dependencies"][0]["dependsOn"] == refs
    assert [each["ref"] for each in bill["dependencies"]] == ["root", *refs]


def test_the_bill_of_materials_is_by_its_schema() -> None:
    pytest.importorskip(
        "cyclonedx",
        reason="needs the extra [release] (pip install '.[release]'): the bill of materials is "
        "NOT checked by its schema",
    )
    bill = bill_of_release()
    SBOM["check_schema"](json.dumps(bill))
    wrong = {**bill["components"][-1], "licenses": [{"license": {"id": "no licence"}}]}
    with pytest.raises(ValueError, match=r"not CycloneDX 1\.6"):
        SBOM["check_schema"](json.dumps({**bill, "components": [wrong]}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda bill: bill["components"][0].pop("purl"), "lacks name, version or purl"),
        (lambda bill: bill["components"][-1].update(version=""), "lacks name, version or purl"),
        (lambda bill: bill["components"].append(bill["components"][0]), "one bom-ref"),
        (lambda bill: bill["components"].pop(0), "what is not there: numpy"),
        (lambda bill: bill["dependencies"].append({"ref": "x"}), "what is not there: x"),
    ],
)
def test_the_bill_of_materials_is_complete(change: Callable[[Any], object], says: str) -> None:
    bill = bill_of_release()
    SBOM["check_parts"](bill)
    change(bill)
    with pytest.raises(ValueError, match=says):
        SBOM["check_parts"](bill)


def test_a_release_checks_its_bill_of_materials() -> None:
    """The script that `release.sh` runs last on it."""
    release = (DEPLOY / "packages/release.sh").read_text()
    script = (DEPLOY / "packages/web_components.py").read_text().partition("__main__")[2]
    assert "deploy/packages/web_components.py" in release
    assert script.index("check_parts(") < script.index("check_schema(") < script.index("write_text")


def test_notes_are_of_exactly_this_version(tmp_path: Path) -> None:
    release = (DEPLOY / "packages/release.sh").read_text()
    found = re.search(r"^awk -v version=\"\$version\" ('[^']+')", release, re.MULTILINE)
    assert found
    log = tmp_path / "CHANGELOG.md"
    log.write_text(
        "# Changelog\n\n## 0.1.10\n\nten\n\n## 0.1.1 (unreleased)\n\none\n\n## 0.1.0\n\nx\n"
    )
    done = subprocess.run(
        ["awk", "-v", "version=0.1.1", found[1].strip("'"), log],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["one"]
