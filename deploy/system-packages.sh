#!/bin/sh
# Check that the system packages for the build and the lab are installed. As root on Debian or
# Ubuntu, install what is missing; otherwise print one line to copy, and fail, unless all that lacks
# is what a part is left out without.
# Options: --test adds the programs our deployment files are tested with, --slow those of the slow
# tests, --bench the systems that the benchmarks compare with.
set -eu
PLUGIN_NEEDS=libibverbs-dev

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] ||
        missing="$missing $2"
}

# A compiler without the C library's development files compiles but cannot link.
links_a_program() { # links_a_program [INCLUDE]
    directory=$(mktemp -d)
    printf '%s\nint main(void) { return 0; }\n' "${1:-}" >"$directory/main.c"
    status=0
    "${CC:-cc}" "$directory/main.c" -o "$directory/main" >/dev/null 2>&1 || status=1
    rm -rf "$directory"
    return $status
}

find_missing() { # find_missing OPTION
    missing=""
    links_a_program || missing="$missing gcc libc6-dev"
    # The NCCL net plug-in is built with its types; it loads the library itself when it runs.
    links_a_program '#include <infiniband/verbs.h>' || missing="$missing $PLUGIN_NEEDS"
    need ip iproute2
    need tc iproute2
    need nft nftables
    need unshare util-linux
    need nsenter util-linux
    need iperf3 iperf3
    need curl curl
    if [ -n "${PYTHON:-}" ] || command -v python3 >/dev/null 2>&1; then
        "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ||
            missing="$missing python3-venv"
    else
        missing="$missing python3 python3-venv"
    fi
    if [ "$1" = "--test" ] || [ "$1" = "--slow" ]; then
        need prometheus prometheus
        need prometheus-alertmanager prometheus-alertmanager
        need shellcheck shellcheck
        need spin spin
    fi
    if [ "$1" = "--slow" ]; then
        need clickhouse-server clickhouse-server
        need ibsim ibsim-utils
        need opensm opensm
        need ibnetdiscover infiniband-diags
        need chronyd chrony
        need qemu-system-x86_64 qemu-system-x86
        need busybox busybox-static
        need depmod kmod
        need ibv_rc_pingpong ibverbs-utils
        need ib_send_lat perftest
        # Debian keeps the server's programs off PATH.
        command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
            missing="$missing postgresql"
        need slurmctld slurmctld
        need slurmd slurmd
        need srun slurm-client
        need munged munge
        need debootstrap debootstrap
        need man man-db
        need sqlite3 sqlite3
        need systemd-nspawn systemd-container
        need java default-jre-headless
        [ -e /usr/share/java/zookeeper.jar ] || missing="$missing zookeeper"
        need chromium chromium
        need sshd openssh-server # Debian starts it, too: not for everybody who runs `make test`
    fi
    if [ "$1" = "--bench" ]; then
        need chronyd chrony
        need ptp4l linuxptp
    fi
    # shellcheck disable=SC2086 # a list of packages
    missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ' | sed 's/ *$//')
}

leave_out_the_plugin() {
    echo "syntony is built without its NCCL net plug-in; to have it, run:" \
        "sudo apt-get install -y $PLUGIN_NEEDS && make clean setup" >&2
    exit 0
}

[ -z "${PYTHON:-}" ] || command -v "$PYTHON" >/dev/null 2>&1 || {
    echo "PYTHON=$PYTHON: no such program; syntony needs Python 3.11 or newer" >&2
    exit 1
}
find_missing "${1:-}"
[ -n "$missing" ] || exit 0

may_install() { command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; }
may_install || [ "$missing" != $PLUGIN_NEEDS ] || leave_out_the_plugin
if ! command -v apt-get >/dev/null 2>&1; then
    echo "syntony needs what Debian calls: $missing; install them with your package manager" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "syntony needs some system packages; run: sudo apt-get install -y $missing" >&2
    exit 1
fi
echo "== installing system packages: $missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# apt-get installs nothing at all if it does not know one name, as Debian 13 has no clickhouse-server.
known=""
for package in $missing; do
    if apt-cache show "$package" >/dev/null 2>&1; then
        known="$known $package"
    else
        echo "== not in this distribution: $package" >&2
    fi
done
# One line per package, so that minutes are not silent. A pipe hides the exit status: look again.
# shellcheck disable=SC2086 # a list of packages
[ -z "$known" ] || apt-get install -y -q --no-install-recommends $known |
    sed -n -e '/^Need to get/p' -e 's/^Setting up \([^ ]*\) .*/   \1/p' >&2
wanted=${known# }
find_missing "${1:-}"
[ "$missing" != $PLUGIN_NEEDS ] || leave_out_the_plugin
[ -z "$missing" ] || {
    echo "syntony still lacks: $missing (installed: $wanted); see apt-get's messages above" >&2
    exit 1
}
