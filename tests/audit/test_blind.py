"""Trees in which most is missing: what nothing tells of is unknown, neither passed nor skipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syntony.audit.registry import host_checks
from syntony.audit.result import Result, Status
from syntony.cli import run
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import recorded_host

INACTIVE = "\n".join(
    f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-{gpu})\n"
    + "\n".join(f"\t Link {link}: <inactive>" for link in range(12))
    for gpu in range(2)
)
RIGHT = INACTIVE.replace("<inactive>", "25 GB/s")


def tree(root: Path, **commands: str) -> Path:
    folder = root / "gpu001" / "commands"
    folder.mkdir(parents=True)
    for name, text in commands.items():
        (folder / name).write_text(text)
    return root / "gpu001"


def verdicts(root: Path) -> list[Result]:
    checks = [kind() for kind in host_checks(active=True)]
    return list(examine_tree(recorded_host(root), checks, 0).results)


@pytest.mark.parametrize(("said", "status"), [(INACTIVE, Status.FAIL), (RIGHT, Status.PASS)])
def test_one_output_is_judged_if_it_is_all_there_is(
    said: str, status: Status, tmp_path: Path
) -> None:
    root = tree(tmp_path, **{"nvidia-smi nvlink -s": said})
    found = [each.status for each in verdicts(root) if each.check == "node.nvlink"]
    assert status in found
    assert Status.SKIP not in found


def test_a_tree_of_nothing_says_nothing(tmp_path: Path) -> None:
    found = verdicts(tree(tmp_path))
    by_spec = {"fe.mesh"}  # not asked for, whatever the host
    strange = {each.check: each.evidence for each in found
               if each.status is not Status.UNKNOWN and each.check not in by_spec}  # fmt: skip
    assert not strange


def test_a_tree_with_programs_that_are_absent_is_certain(tmp_path: Path) -> None:
    root = tree(tmp_path, **{"nvidia-smi.absent": "", "amd-smi.absent": ""})
    reported = {each.check: each.status for each in verdicts(root)}
    assert reported["node.gpu-health"] is reported["mem.gpu-ecc"] is Status.SKIP


def test_unreadable_lids_and_versions_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dumps that hold a file's name in place of its text, as a published one does."""
    reported: dict[str, str] = {}
    for number in range(2):
        port = f"/sys/class/infiniband/mlx5_{number}/ports/1"
        reported |= {f"{port}/state": "4: ACTIVE", f"{port}/phys_state": "5: LinkUp",
                 f"{port}/rate": "200 Gb/sec (4X HDR)", f"{port}/link_layer": "InfiniBand",
                 f"{port}/lid": "lid", f"{port}/sm_lid": "sm_lid",
                 f"/sys/class/infiniband/mlx5_{number}/fw_ver": "fw_ver",
                 f"/sys/class/infiniband/mlx5_{number}/board_id": f"board{number}"}  # fmt: skip
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(reported))
    words = ["--check", "be.gid.ib", "--check", "sw.nic-fw", "--check", "be.act.homog"]
    assert run(["audit", "run", "--root", str(file), *words, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert {each["status"] for each in found if each["check"] != "be.act.homog"} == {"unknown"}
    # Two cards of two kinds have nobody to be like.
    assert {each["status"] for each in found if each["check"] == "be.act.homog"} == {"skip"}


def test_a_host_that_ssh_does_not_reach_is_not_part_of_all_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "test.sh"
    script.write_text('case "$1$2" in *gpu3*) exit 127;; esac\n')
    words = ["audit", "pairs", "--hosts", "gpu[0-7]", "--json", "--"]
    assert run([*words, "sh", str(script), "{a}", "{b}"]) == 3
    found = {each["subject"]: each["status"] for each in json.loads(capsys.readouterr().out)}
    assert found == {"gpu3": "unknown", "8 hosts": "pass"}
