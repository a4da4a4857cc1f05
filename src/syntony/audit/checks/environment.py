"""1.1 Software: libraries, NCCL, and the environment that jobs inherit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from syntony.audit.check import HostCheck, Key, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.gpus import has_amd, has_nvidia, without_gpu
from syntony.audit.rdma import rdma_devices
from syntony.audit.result import ComparedValue, Result, Suspect

_LDCONFIG = re.compile(r"^\s*(lib\S+?)\.so(\S*) \(([^)]*)\) => (/\S+)\s*$", re.MULTILINE)
_SO_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


_LIB = "/{lib*,lib*/*,usr/lib*,usr/lib*/*,usr/local/lib*,usr/local/lib/*,usr/local/cuda*/lib64,"
_LIB += "opt/rocm*/lib}"
_LIBRARIES = ("libcuda", "libnvidia-ml", "libamdhip64", "librocm_smi64", "libibverbs")


def linker_cache(host: Facts) -> dict[str, str]:
    """Library → file, as the dynamic linker finds it. Raises `FactError`."""
    text = host.run("ldconfig", "-p")
    if "libs found in cache" not in text:
        raise UnreadableError("`ldconfig -p` printed no cache")
    found: dict[str, str] = {}
    for match in _LDCONFIG.finditer(text):
        found.setdefault(match[1], match[4])
    return found


class Libraries(HostCheck):
    """The libraries that jobs load are there and not empty.

    Expected results: libcuda and libnvidia-ml with an NVIDIA GPU, libamdhip64 and librocm_smi64
    with an AMD one, libibverbs with an RDMA NIC: in the linker's cache, the file larger than zero.
    """

    id = "sw.libs"
    section = Section.SOFTWARE
    reads = ("$ ldconfig -p", *(f"{_LIB}/{name}.so*" for name in _LIBRARIES))
    meaning = (
        "a library is missing or an empty file (a container's mount failed): jobs do not start"
    )
    remedy = "reinstall the package; look at the container toolkit's mounts"
    suspect = Suspect.CONFIG

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        wanted = self._wanted(host)
        if not wanted:
            yield without_gpu(self, host, "neither GPU nor RDMA NIC here")
            return
        cache = linker_cache(host)
        for name in wanted:
            yield self._one(host, name, cache.get(name))

    def _one(self, host: Facts, name: str, path: str | None) -> Result:
        if path is None:
            return self.verdict(False, host, "not found", "in the linker's cache", "ldconfig -p",
                                at=name)  # fmt: skip
        try:
            empty = not host.read_bytes(path)
        except AbsentError:
            return self.verdict(False, host, "a dangling link", "a file", path, at=name)
        except UnreadableError as error:
            return self.unknown(host, str(error), name)
        return self.verdict(not empty, host, "empty" if empty else path, "not empty", path, at=name)

    @staticmethod
    def _wanted(host: Facts) -> tuple[str, ...]:
        wanted: list[str] = []
        if has_nvidia(host):
            wanted += ["libcuda", "libnvidia-ml"]
        if has_amd(host):
            wanted += ["libamdhip64", "librocm_smi64"]
        if rdma_devices(host):
            wanted.append("libibverbs")
        return tuple(wanted)


class NcclVersion(HostCheck):
    """The host's NCCL or RCCL is the fleet's.

    Expected results: the version in the library's file name equal to the expected value; skipped
    where none is installed on the host (containers bring their own).
    """

    id = "sw.nccl-version"
    section = Section.SOFTWARE
    reads = ("$ ldconfig -p", f"{_LIB}/lib{{nccl,rccl}}.so*")
    meaning = "ranks of one job load different NCCLs: it hangs at start or falls back silently"
    remedy = "pin the version in the image"
    suspect = Suspect.CONFIG
    keys = (Key("sw.nccl-version", "version of libnccl or librccl", variant="library"),)

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        cache = linker_cache(host)
        here = [name for name in ("libnccl", "librccl") if name in cache]
        if not here:
            yield self.skip(host, "no NCCL in the linker's cache")
        for name in here:
            file = host.real(cache[name])
            match = _SO_VERSION.search(file)
            if match is None:
                yield self.unknown(host, f"{file} does not tell its version", name)
            else:
                yield self.reading(
                    host, "sw.nccl-version", match[1], name, variant=name, evidence=file
                )


_FILES = ("/etc/environment", "/etc/nccl.conf", "/root/.nccl.conf")
_FOLDERS = ("/etc/profile.d", "/etc/environment.d", "/etc/security/pam_env.conf.d")
_SETTING = re.compile(
    r"^\s*(?:export\s+)?(?P<name>(?:NCCL|RCCL|UCX|CUDA|HIP|ROCR|HSA|FI|TORCH_NCCL)_\w+)\s*=\s*"
    r"[\"']?(?P<value>[^\"'#\n]*)",
    re.MULTILINE,
)
_HARMFUL = {
    ("NCCL_IB_DISABLE", "1"): "all traffic goes over sockets",
    ("NCCL_P2P_DISABLE", "1"): "GPUs of one host do not use NVLink",
    ("NCCL_SHM_DISABLE", "1"): "processes of one host talk over the network",
    ("NCCL_NET_GDR_LEVEL", "0"): "GPU-direct RDMA is off",
    ("NCCL_NET_GDR_LEVEL", "LOC"): "GPU-direct RDMA is off",
    ("NCCL_NET", "Socket"): "all traffic goes over sockets",
    ("NCCL_CROSS_NIC", "1"): "rails are mixed: only for fabrics without rails",
    ("CUDA_LAUNCH_BLOCKING", "1"): "kernels run one at a time: for debugging only",
    ("NCCL_DEBUG", "TRACE"): "every message is logged",
}


def inherited(host: Facts) -> tuple[dict[str, str], list[str]]:
    """Settings that jobs of the host inherit, and why some files could not be read."""
    settings: dict[str, str] = {}
    denied: list[str] = []
    for path in _paths(host):
        try:
            text = host.read(path)
        except AbsentError:
            continue
        except UnreadableError as error:
            denied.append(str(error))
            continue
        settings |= {each["name"]: each["value"].strip() for each in _SETTING.finditer(text)}
    return settings, denied


def _paths(host: Facts) -> Iterator[str]:
    yield from _FILES
    for folder in _FOLDERS:
        try:
            yield from (f"{folder}/{name}" for name in host.names(folder))
        except FactError:
            continue


class Environment(HostCheck):
    """Nothing in the host's environment forces jobs off the fast path.

    Expected results: none of the known harmful settings (NCCL_IB_DISABLE=1, NCCL_P2P_DISABLE=1,
    NCCL_NET_GDR_LEVEL=0, NCCL_NET=Socket…), no NCCL_IB_HCA list that matches by prefix (`mlx5_1`
    takes mlx5_10 too; write `=mlx5_1`); all settings equal to the expected ones.
    """

    id = "sw.env"
    section = Section.SOFTWARE
    reads = (*_FILES, "/etc/profile.d/*", "/etc/environment.d/*", "/etc/security/pam_env.conf.d/*")
    meaning = "one host forces its jobs onto a slow path"
    remedy = "remove the setting, or make it the same everywhere and write it in the spec"
    suspect = Suspect.CONFIG
    keys = (Key("sw.env", "NCCL, RCCL, UCX, CUDA and HIP settings of the host"),)

    class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        allowed: tuple[str, ...] = ()
        """``NAME=VALUE`` that this fleet wants although it is on the list."""

    limits: Input

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        if not host.exists("/etc"):
            raise UnreadableError("no /etc: the host's environment is unknown")
        settings, denied = inherited(host)
        harm = [(f"{name}={value}", why) for name, value, why in self._harmful(settings)]
        for setting, why in harm:
            yield self.verdict(
                False, host, setting, "not set", why, at=setting.partition("=")[0], meaning=why
            )
        if denied:
            yield self.unknown(host, denied[0])
        if not harm and not denied:
            yield self.verdict(True, host, f"{len(settings)} settings", "none that is harmful",
                               ", ".join(_FILES))  # fmt: skip
        listed = " ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        if not denied:
            yield self.reading(host, "sw.env", listed or "none", evidence=", ".join(_FILES))

    def _harmful(self, settings: dict[str, str]) -> Iterator[tuple[str, str, str]]:
        for name, value in sorted(settings.items()):
            if f"{name}={value}" in self.limits.allowed:
                continue
            why = _HARMFUL.get((name, value))
            if why is not None:
                yield name, value, why
            elif name == "NCCL_IB_HCA" and value and value[0] not in "=^":
                yield name, value, "matches by prefix: mlx5_1 takes mlx5_10 to mlx5_19 too"
