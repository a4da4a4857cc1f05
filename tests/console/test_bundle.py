"""The console's bundle is committed: it is of these sources, small, and asks nobody else."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
WEB, BUNDLE = REPO / "web", REPO / "src/syntony/api/console"
FIXED = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.js")
MAX_RAW_BYTES, MAX_GZIP_BYTES = 300_000, 700_000


def sources_hash() -> str:
    """As `web/vite.config.js` writes it into the manifest."""
    found = [
        file.relative_to(WEB).as_posix() for file in (WEB / "src").rglob("*") if file.is_file()
    ]
    digest = hashlib.sha256()
    for name in sorted([*FIXED, *found]):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    return digest.hexdigest()


def bundle_files() -> list[Path]:
    """Every file that browsers fetch."""
    return [file for file in BUNDLE.rglob("*") if file.is_file() and file.name != "manifest.json"]


def test_the_bundle_is_of_these_sources() -> None:
    manifest = json.loads((BUNDLE / "manifest.json").read_text())
    assert manifest["sources"] == sources_hash(), "web/ has changed: run `make web`, and commit"


def test_the_bundle_is_small() -> None:
    contents = [file.read_bytes() for file in bundle_files()]
    assert 10_000 < sum(map(len, contents)) <= MAX_RAW_BYTES
    assert sum(len(gzip.compress(data)) for data in contents) <= MAX_GZIP_BYTES


def test_the_bundle_names_no_other_origin() -> None:
    """Names of XML namespaces are not fetched."""
    for file in bundle_files():
        urls = re.findall(r"https?://[^\s\"'`)<>]+", file.read_text())
        assert not [url for url in urls if not url.startswith("http://www.w3.org/")], file


def test_the_page_has_nothing_inline() -> None:
    """The content security policy would block it."""
    page = (BUNDLE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:|data:", page)
    names = re.findall(r'(?:src|href)="\./([^"]+)"', page)
    assert len(names) == 3
    assert all((BUNDLE / name).is_file() for name in names)


@pytest.mark.slow
def test_a_rebuild_gives_the_same(tmp_path: Path) -> None:
    """With Node at hand: what is committed is what the sources build."""
    node = shutil.which("npx")
    if node is None or not (WEB / "node_modules").is_dir():
        pytest.skip(
            "needs Node (Debian: npm) and `make web`: that the bundle is built from the sources "
            "is NOT tested"
        )
    command = [node, "vite", "build", "--outDir", str(tmp_path), "--emptyOutDir", "false"]
    subprocess.run(command, cwd=WEB, check=True, capture_output=True, timeout=600)
    built = {path.relative_to(tmp_path).as_posix(): path.read_bytes()
             for path in tmp_path.rglob("*") if path.is_file()}  # fmt: skip
    committed = {path.relative_to(BUNDLE).as_posix(): path.read_bytes() for path in bundle_files()}
    built.pop("manifest.json", None)
    assert built == committed


@pytest.mark.slow
def test_pure_parts_of_the_console() -> None:
    """Vitest: formats, layout and level of detail of the map, the matrix, the audit's table."""
    node = shutil.which("npx")
    if node is None or not (WEB / "node_modules").is_dir():
        pytest.skip(
            "needs Node (Debian: npm) and `make web`: functions of the console are NOT tested"
        )
    done = subprocess.run(
        [node, "vitest", "run"], cwd=WEB, check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:]
