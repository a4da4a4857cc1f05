"""Add what the console bundles from npm to a CycloneDX bill of materials that has Python only.

python deploy/packages/web_components.py SBOM web/package-lock.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote


def components(lock: dict[str, Any]) -> list[dict[str, Any]]:
    """Packages of a lock file that are part of the bundle: those that are not for development."""
    return [
        {
            "type": "library",
            "bom-ref": f"npm:{name}@{package['version']}",
            "name": name,
            "version": package["version"],
            "purl": f"pkg:npm/{quote(name)}@{package['version']}",
            "licenses": [{"license": {"id": package["license"]}}],
        }
        for path, package in lock["packages"].items()
        if (name := path.rpartition("node_modules/")[2]) and not package.get("dev")
    ]


def add(sbom: dict[str, Any], lock: dict[str, Any]) -> None:
    """Put them into a bill, as dependencies of its subject."""
    found = components(lock)
    subject = sbom["metadata"]["component"]["bom-ref"]
    (root,) = (each for each in sbom["dependencies"] if each["ref"] == subject)
    root["dependsOn"] = [*root.get("dependsOn", ()), *(each["bom-ref"] for each in found)]
    sbom["components"] += found
    sbom["dependencies"] += [{"ref": each["bom-ref"]} for each in found]


if __name__ == "__main__":
    target, source = map(Path, sys.argv[1:])
    bill = json.loads(target.read_text(encoding="utf-8"))
    add(bill, json.loads(source.read_text(encoding="utf-8")))
    target.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
