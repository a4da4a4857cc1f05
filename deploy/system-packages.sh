#!/bin/sh
# What the lab and the build need from the system. Installed when we are root on Debian or Ubuntu,
# else named in one line to copy. `--test` adds what the tests try our deployment files on, `--slow`
# also what only the slow tests need, `--bench` the systems that benches compare with.
set -eu

missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] ||
        missing="$missing $2"
}
need cc gcc
need ip iproute2
need tc iproute2
need nft nftables
need unshare util-linux
need nsenter util-linux
need iperf3 iperf3
need curl curl
if [ -n "${PYTHON:-}" ] || command -v python3 >/dev/null 2>&1; then
    "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
else
    missing="$missing python3 python3-venv"
fi
if [ "${1:-}" = "--test" ] || [ "${1:-}" = "--slow" ]; then
    need prometheus prometheus
    need prometheus-alertmanager prometheus-alertmanager
    need shellcheck shellcheck
fi
if [ "${1:-}" = "--slow" ]; then
    need clickhouse-server clickhouse-server
    need ibsim ibsim-utils
    need opensm opensm
    need ibnetdiscover infiniband-diags
    need chronyd chrony
    need sshd openssh-server # Debian starts it, too: not for everybody who runs `make test`
fi
if [ "${1:-}" = "--bench" ]; then
    need chronyd chrony
    need ptp4l linuxptp
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ' | sed 's/ *$//')
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$(printf ' %s' $missing)" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
    exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
    echo "syntony needs some system packages; run: sudo apt-get install -y $missing" >&2
else
    echo "syntony needs what Debian calls: $missing; install them with your package manager" >&2
fi
exit 1
