"""Builds and caches what a guest boots: Debian's kernel and a small initramfs.

The guest's root is the machine's own file system, shared read-only, so that the same Python and the
same Syntony run inside. Only the kernel and its modules come from a package, which is unpacked and
never installed.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from syntony.errors import MissingError
from syntony.lab.world import need, search_path

TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "rdma": "iproute2",
    "ibv_devinfo": "ibverbs-utils",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
"""Commands a guest needs, and the Debian package of each."""
KERNEL = "linux-image-amd64"
MODULES = (
    "crc32_generic", "crc32c_generic", "9p", "9pnet_virtio", "virtio_pci", "virtio_net", "veth",
    "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad", "tun", "vrf", "nf_tables", "nft_ct",
    "nft_numgen", "nft_hash", "nft_fib_inet", "nft_nat", "nft_chain_nat", "nft_limit", "nft_tproxy",
    "sch_netem", "sch_tbf", "sch_fq", "sch_htb", "sch_prio", "sch_ingress", "cls_u32", "cls_flower",
    "cls_matchall", "cls_bpf", "act_mirred", "tcp_diag", "inet_diag", "udp_diag", "mptcp_diag",
)  # fmt: skip
"""Loaded with their dependencies; those built into the kernel, or missing, are skipped."""
ROOT_TAG, LAB_TAG = "root", "lab"
GUESTS_OWN = ("/run", "/tmp", "/dev")  # noqa: S108 - names of what is hidden
"""Directories that a guest has for itself; all others are the host's."""
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module 2>/dev/null; done
for word in $(cat /proc/cmdline); do
    case $word in syntony.*) export "${{word#syntony.}}";; esac
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro {ROOT_TAG} /new ||
    {{ echo "guest: no root"; poweroff -f; }}
for place in dev proc sys; do mount --move /$place /new/$place; done
for place in run tmp dev/shm; do mkdir -p /new/$place; mount -t tmpfs none /new/$place; done
mount -t devpts none /new/dev/pts 2>/dev/null || {{ mkdir -p /new/dev/pts &&
    mount -t devpts none /new/dev/pts; }}
mkdir -p "/new$lab"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap {LAB_TAG} "/new$lab" ||
    {{ echo "guest: no $lab"; poweroff -f; }}
exec switch_root /new $python -m syntony.lab.verbs.guest "$config"
"""


class Image(NamedTuple):
    """Files that QEMU is given."""

    kernel: Path
    initrd: Path

    @classmethod
    def of(cls, place: Path) -> Self:
        return cls(place / "vmlinuz", place / "initrd.gz")


def image() -> Path:
    """Folder of the image, from the cache or made now (a minute, 70 MB fetched). Raises
    `MissingError`: a program is missing, Debian's package cannot be had, or guests would not see
    this program."""
    need(TOOLS)
    for own in GUESTS_OWN:
        if Path(sys.prefix).is_relative_to(own):
            raise MissingError(
                f"Syntony is in {sys.prefix}, which virtual machines do not see: they have {own} of"
                " their own; move it, say, to your home"
            )
    package = _newest_kernel()
    recipe = hashlib.sha256(f"{package} {INIT} {MODULES}".encode()).hexdigest()[:12]
    place = _cache() / f"{package}-{recipe}"
    if not Image.of(place).initrd.exists():
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            _make(package, Path(work))
            shutil.rmtree(place, ignore_errors=True)
            (Path(work) / "image").rename(place)
    return place


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    place = Path(base).expanduser() / "syntony" / "verbs"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingError(f"{place}: {error.strerror}; set XDG_CACHE_HOME") from error
    return place


def _newest_kernel() -> str:
    """Name and version of the package that `KERNEL` stands for today."""
    said = _run(["apt-cache", "depends", "--important", KERNEL])
    names = [line.split()[-1] for line in said.splitlines() if "Depends: linux-image" in line]
    if not names:
        raise MissingError(f"apt does not know {KERNEL}; apt-get update, or use Debian on x86-64")
    return names[0]


def _make(package: str, work: Path) -> None:
    _run(["apt-get", "download", "-q", package], cwd=work)
    [archive] = work.glob("*.deb")
    tree = work / "tree"
    _run(["dpkg-deb", "-x", str(archive), str(tree)])
    version = package.removeprefix("linux-image-")
    _run(["depmod", "-b", str(tree), version])
    image = work / "image"
    image.mkdir()
    [kernel] = (tree / "boot").glob("vmlinuz-*")
    shutil.copy(kernel, image / "vmlinuz")
    _initramfs(tree / "lib/modules" / version, image / "initrd.gz")


def _initramfs(modules: Path, target: Path) -> None:
    busybox = shutil.which("busybox", path=search_path()) or "busybox"
    files: list[tuple[str, int, bytes]] = [
        (name, 0o040755, b"") for name in ("bin", "proc", "sys", "dev", "new", "modules")
    ]
    files.append(("bin/busybox", 0o100755, Path(busybox).read_bytes()))
    files.append(("bin/sh", 0o120777, b"busybox"))
    order = []
    for path in load_order((modules / "modules.dep").read_text(encoding="ascii"), MODULES):
        data = (modules / path).read_bytes()
        name = Path(path).name
        if name.endswith(".xz"):
            name, data = name.removesuffix(".xz"), lzma.decompress(data)
        order.append(name)
        files.append((f"modules/{name}", 0o100644, data))
    files.append(("modules/order", 0o100644, "\n".join(order).encode()))
    files.append(("init", 0o100755, INIT.encode()))
    target.write_bytes(gzip.compress(b"".join(newc(files)), 1))


def load_order(dependencies: str, wanted: Sequence[str]) -> list[str]:
    """Files of the wanted modules and of all they need, each after what it needs.

    Args:
        dependencies: `modules.dep` (depmod(8)).
        wanted: names; unknown ones are passed over.
    """
    needs = {}
    for line in dependencies.splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    names = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    found: dict[str, None] = {}
    for name in wanted:
        file = names.get(name.replace("-", "_"))
        if file is not None:
            # Each line names all that is needed, the first needed last.
            found.update(dict.fromkeys([*reversed(needs[file]), file]))
    return list(found)


def newc(files: Sequence[tuple[str, int, bytes]]) -> Iterator[bytes]:
    """A cpio archive as the kernel reads it (Documentation/driver-api/early-userspace)."""
    for number, (name, mode, data) in enumerate((*files, ("TRAILER!!!", 0, b"")), 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
        yield head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def _run(argv: list[str], cwd: Path | None = None) -> str:
    env = {**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MissingError(f"{' '.join(argv)}: {said[-1] if said else 'failed'}")
    return done.stdout
