#!/bin/sh
# Cross-build the wheel for aarch64 into DIRECTORY and try it under QEMU's user mode: the native tests
# but those that QEMU cannot run, an import, and the unit tests of what Python calls in C. No root is
# needed, and nothing on this machine is changed; what is fetched and built stays in build/aarch64.
#
#   deploy/packages/aarch64.sh dist
#
# Needs `make dist`'s tools, Debian's gcc-aarch64-linux-gnu, qemu-user-static and apt, and Linux 6.7 or
# newer. Exit code 3: this machine lacks one of those, and the line says which.
set -eu
out=${1:?usage: aarch64.sh DIRECTORY}
cd "$(dirname "$0")/../.."

lacks() { echo "no aarch64 wheel: $*" >&2; exit 3; }
command -v aarch64-linux-gnu-gcc >/dev/null || lacks "install gcc-aarch64-linux-gnu"
command -v qemu-aarch64-static >/dev/null || lacks "install qemu-user-static"
command -v apt-get >/dev/null || lacks "needs apt-get, for Debian's arm64 libraries"
# Since Linux 6.7 a user namespace has foreign programs' interpreters of its own.
unshare --user --map-root-user --mount \
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null ||
    lacks "needs user namespaces with a binfmt_misc of their own (Linux 6.7)"
mkdir -p "$out" build/aarch64
out=$(realpath "$out")
work=$(realpath build/aarch64)
root=$work/root
python=$(realpath .venv)/bin/python

fetch_root() { # Debian's arm64 libraries, headers and Python: unpacked, never configured
    apt=$work/apt
    mkdir -p "$root.partial" "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian bookworm main" >"$apt/sources.list"
    set -- -qq -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" \
        -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Acquire::Languages=none
    apt-get "$@" update
    apt-get "$@" --no-install-recommends --download-only install \
        libc6-dev libibverbs-dev libpython3-dev libstdc++6 python3 >/dev/null
    for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$root.partial"; done
    # libm.so is a link to /lib/…: of this machine, unless it is relative, and then libm.a is taken.
    find "$root.partial" -type l -lname '/*' | while read -r link; do
        ln -sfnr "$root.partial$(readlink "$link")" "$link"
    done
    rm -rf "$apt"
    mv "$root.partial" "$root"
}
[ -d "$root" ] || fetch_root

cat >"$work/toolchain.cmake" <<TOOLCHAIN
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_C_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT $root)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
TOOLCHAIN
export CMAKE_TOOLCHAIN_FILE="$work/toolchain.cmake"

echo "== native tests"
# What QEMU's user mode has not: SO_RXQ_OVFL (the probe engine), MADV_WIPEONFORK, which it ignores
# (what forked children must not do), wrong socket types, which it corrects, and programs that start
# themselves again (the kernel gives them to QEMU only below, in in_qemu).
beyond='^(engine|verbs_probe_(pairs|classes|losses|restart|stamps|infiniband|gone|strangers|churn'
beyond="$beyond|clock_.*)|job|nccl_profiler_v[0-9]+_forked|verbs_(fake|door)|tcp_interpose)\$"
.venv/bin/cmake -S . -B "$work/tests" -DSYNTONY_TESTS=ON >/dev/null
.venv/bin/cmake --build "$work/tests" --parallel "$(nproc)" >/dev/null
.venv/bin/ctest --test-dir "$work/tests" --parallel "$(nproc)" --timeout 300 --output-on-failure \
    --label-exclude costly --exclude-regex "$beyond" >"$work/ctest.log" ||
    { cat "$work/ctest.log" >&2; exit 1; }
tail -n 3 "$work/ctest.log"
echo "left out, for QEMU cannot run them: $(.venv/bin/ctest --test-dir "$work/tests" -N \
    --tests-regex "$beyond" | sed -n 's/^ *Test .*: //p' | tr '\n' ' ')"

echo "== wheel"
rm -rf "$work/raw" "$work/site"
"$python" -m pip install -q --upgrade --target "$work/tools" 'scikit-build-core>=0.11' 'cffi>=1.17'
PYTHONPATH=$work/tools _PYTHON_HOST_PLATFORM=linux-aarch64 "$python" -m pip wheel -q \
    --no-build-isolation --no-deps -w "$work/raw" -C build-dir="$work/wheel" .
PATH=$PWD/.venv/bin:$PATH .venv/bin/auditwheel repair --exclude libibverbs.so.1 -w "$out" \
    "$work"/raw/*.whl

echo "== the wheel under QEMU"
wheel=$(ls "$out"/syntony-*_aarch64.whl)
"$python" -m pip install -q --target "$work/site" --only-binary=:all: --python-version 3.11 \
    --platform manylinux_2_34_aarch64 --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    --implementation cp --abi cp311 --abi abi3 "$wheel" pytest hypothesis scipy
# Programs that Python starts are aarch64 as well: the kernel gives them to QEMU, in here only.
# shellcheck disable=SC2016 # expanded by the inner shell
in_qemu() {
    env PYTHONPATH="$work/site" QEMU_LD_PREFIX="$root" PYTHONDONTWRITEBYTECODE=1 \
        unshare --user --map-root-user --mount sh -euc '
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        magic="\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00"
        mask="\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff"
        printf "%s" ":aarch64:M::$magic:$mask\\xff\\xff:$(command -v qemu-aarch64-static):F" \
            >/proc/sys/fs/binfmt_misc/register
        exec "$@"' in-qemu "$@"
}
in_qemu "$root/usr/bin/python3.11" -c '
import platform
import syntony
from syntony.io._native import _now
print(platform.machine(), syntony.__version__, syntony.__file__)'
in_qemu "$root/usr/bin/python3.11" -m pytest -q -p no:cacheprovider \
    -m 'not slow and not lab and not costly' tests/io/test_native_abi.py tests/io/test_packet.py \
    tests/io/test_fluid.py tests/io/test_clock_page.py tests/io/test_window_fit.py
