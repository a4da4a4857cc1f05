"""What a release says about itself: its bill of materials and its notes."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

from tests.deploy.daemons import DEPLOY

TOP = DEPLOY.parent
ADD = runpy.run_path(str(DEPLOY / "packages/web_components.py"))["add"]


def test_the_bill_of_materials_has_what_the_console_bundles() -> None:
    bill: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": [],
        "dependencies": [{"ref": "root", "dependsOn": ["numpy"]}],
    }
    ADD(bill, json.loads((TOP / "web/package-lock.json").read_text()))
    wanted = json.loads((TOP / "web/package.json").read_text())
    names = {each["name"] for each in bill["components"]}
    assert set(wanted["dependencies"]) <= names
    assert not names & set(wanted["devDependencies"])
    refs = [each["bom-ref"] for each in bill["components"]]
    assert bill["dependencies"][0]["dependsOn"] == ["numpy", *refs]
    assert [each["ref"] for each in bill["dependencies"]] == ["root", *refs]


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
