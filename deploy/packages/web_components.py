"""Add what the console bundles from npm to a CycloneDX bill of materials that has Python only, and
check the result against CycloneDX' own schema.

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


def check_schema(text: str) -> None:
    """Raises `ValueError`: not valid by the strict schema of its version."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    version = json.loads(text)["specVersion"]
    problem = JsonStrictValidator(SchemaVersion.from_version(version)).validate_str(text)
    if problem is not None:
        raise ValueError(f"not CycloneDX {version}: {problem}")


def check_parts(bill: dict[str, Any]) -> None:
    """What the schema leaves open. Raises `ValueError`: a component without name, version or purl,
    two with one reference, or a dependency on what is not there."""
    refs = [bill["metadata"]["component"]["bom-ref"]]
    for each in bill["components"]:
        if not all(each.get(key) for key in ("name", "version", "purl")):
            raise ValueError(f"a component lacks name, version or purl: {each}")
        refs.append(each["bom-ref"])
    if len(refs) != len(set(refs)):
        raise ValueError("two components have one bom-ref")
    for each in bill["dependencies"]:
        if missing := {each["ref"], *each.get("dependsOn", ())} - set(refs):
            raise ValueError(f"dependencies name what is not there: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    target, source = map(Path, sys.argv[1:])
    bill = json.loads(target.read_text(encoding="utf-8"))
    add(bill, json.loads(source.read_text(encoding="utf-8")))
    check_parts(bill)
    text = json.dumps(bill, indent=2) + "\n"
    check_schema(text)
    target.write_text(text, encoding="utf-8")
