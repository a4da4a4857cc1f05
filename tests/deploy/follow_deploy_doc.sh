#!/usr/bin/env bash
# Follow docs/how-to/deploy.md literally, as root in a bare Debian without systemd:
#
#   deploy/try-bare-root.sh trixie root tests/deploy/follow_deploy_doc.sh
#
# Runs every line of the page's `sh` blocks; what systemd would do is done by hand from the units. The
# daemons run in a network namespace with the NICs and the name that the examples use.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD page=docs/how-to/deploy.md

lines() { awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$here/$page"; }
of_unit() { sed -n "s/^$2=//p" "$here/deploy/systemd/syntony-$1.service"; }

# Before the daemons: all but what talks to them or to NICs.
apt-get update -qq
lines | grep -vE '^(systemctl|syntony (probe|agent|enrol)|runuser.* enrol join) ?' >/tmp/install.sh
bash -euxo pipefail /tmp/install.sh
apt-get install -y -qq --no-install-recommends iproute2 util-linux >/dev/null # for this script only

as_unit() { # as_unit NAME: the unit's directories, and its command as its user
    local user directory capabilities
    user=$(of_unit "$1" User)
    install -d -o "$user" -m "$(of_unit "$1" StateDirectoryMode)" "/var/lib/$(of_unit "$1" StateDirectory)"
    directory=$(of_unit "$1" RuntimeDirectory)
    install -d -o "$user" -m "$(of_unit "$1" RuntimeDirectoryMode)" "/run/$directory"
    capabilities=$(of_unit "$1" AmbientCapabilities | tr '[:upper:]' '[:lower:]' | sed 's/\<cap_/+/g; s/ /,/g')
    # shellcheck disable=SC2046,SC2086 # a command line
    (umask "$(of_unit "$1" UMask)" && cd / &&
        exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
            ${capabilities:+--inh-caps $capabilities --ambient-caps $capabilities} \
            $(of_unit "$1" ExecStart)) &
}

daemons() {
    ip link set lo up
    for nic in eth2 eth3; do
        ip link add "$nic" type veth peer name "far-$nic"
        ip address add "192.0.2.${nic#eth}/31" dev "$nic"
        ip link set "$nic" up
        ip link set "far-$nic" up
    done
    eval "$(lines | grep "^syntony agent check")" || true # these NICs have no hardware stamps
    as_unit controller
    controller=$!
    for _ in $(seq 120); do
        [ -S /run/syntony-controller/controller.sock ] && break
        sleep 1
    done
    TOKEN=$(eval "$(lines | grep '^syntony enrol token')" 2>/tmp/fingerprint.txt)
    FINGERPRINT=$(sed -n 's/^fingerprint of the CA: //p' /tmp/fingerprint.txt)
    export TOKEN FINGERPRINT
    eval "$(lines | grep '^runuser.* enrol join')"
    eval "$(lines | grep '^syntony enrol list')"
    as_unit reactor
    reactor=$!
    as_unit agent
    agent=$!
    for _ in $(seq 120); do
        [ -S /run/syntony-controller/controller.sock ] && [ -e /run/syntony/clock ] && break
        sleep 1
    done
    sleep 10
    # A fleet of one host has no pair to show: what counts is that the controller answers.
    lines | grep '^syntony probe matrix' | while read -r line; do
        echo "+ $line"
        ${line} --json
    done
    kill "$controller" && wait "$controller"
    rm -rf "/run/$(of_unit controller RuntimeDirectory)" # as systemd does when the unit stops
    test -e /run/syntony/clock
    kill "$agent" "$reactor" && wait "$agent" "$reactor"
}

echo "127.0.0.1 syntony.example gpu001" >>/etc/hosts
export -f lines of_unit as_unit daemons
export here page
unshare --net bash -euo pipefail -c daemons
echo "deploy.md works"
