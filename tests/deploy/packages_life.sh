#!/usr/bin/env bash
# Install, upgrade, remove and purge the Debian packages in ~/given, as root in a bare Debian:
#
#   GIVE=dist/bookworm deploy/try-bare-root.sh bookworm root tests/deploy/packages_life.sh
#
# After the purge the file system and the users are compared with those before.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
given=$HOME/given

trap 'echo "packages_life: line $LINENO failed" >&2' ERR
fail() { echo "packages_life: $*" >&2; exit 1; }
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /root -o -path /tmp \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \) -prune \
        -o -print | sort
}
users() { cut -d: -f1 /etc/passwd /etc/group | sort; }
version() { dpkg-query -W -f '${Version}' "$1"; }

echo "== what every host with these packages has besides"
apt-get update -qq
depends=$(for deb in "$given"/*.deb; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' |
    sed 's/(.*//; s/|.*//; s/ //g' | grep -v '^syntony' | sort -u)
# shellcheck disable=SC2086 # a list of packages
apt-get install -y -qq --no-install-recommends $depends >/dev/null
files >/tmp/files.before
users >/tmp/users.before

echo "== install"
apt-get install -y -qq --no-install-recommends "$given"/*.deb >/dev/null
syntony --version
syntony config check /etc/syntony/agent.toml
syntony config check /etc/syntony/controller.toml
[ "$(stat -c '%U %a' /var/lib/syntony)" = "syntony 700" ] || fail "directory of the daemons"
[ -s /usr/share/man/man1/syntony-lab-up.1.gz ] || [ -e /etc/dpkg/dpkg.cfg.d/excludes ] ||
    fail "no man pages"
bash -euc '. /usr/share/bash-completion/completions/syntony; COMP_WORDS=(syntony do); COMP_CWORD=1
    _syntony_completion syntony; echo "${COMPREPLY[*]}"' | grep -qw doctor || fail "completion"
/opt/syntony/bin/python3 -c 'import chdb, pyarrow, scipy, psycopg, uvloop' || fail "the store's engine"
for unit in agent reactor controller; do
    [ -s /lib/systemd/system/syntony-$unit.service ] || fail "no unit of the $unit"
done
[ -z "$(find /opt/syntony ! -type l \( ! -user root -o -perm /022 \) -print -quit)" ] ||
    fail "the daemons could change their own program"
[ "$(stat -c '%U %G %a' /etc/syntony/controller.toml)" = "root syntony 640" ] ||
    fail "everybody may read the password of the store"
runuser -u syntony -- syntony enrol authority /var/lib/syntony/ca --address localhost >/dev/null
runuser -u syntony -- mkdir /var/lib/syntony/spool /var/lib/syntony/state

echo "== upgrade"
echo "# ours" >>/etc/syntony/agent.toml
old=$(version syntony-tools)
mkdir /tmp/newer
for deb in "$given"/*.deb; do # the same files as a later version
    dpkg-deb -R "$deb" /tmp/tree
    sed -i "s/$old/$old.1/g" /tmp/tree/DEBIAN/control
    dpkg-deb --root-owner-group -Znone -b /tmp/tree /tmp/newer >/dev/null
    rm -rf /tmp/tree
done
# A machine with systemd that writes down what it is asked for: an upgrade restarts what runs, and stops nothing.
asked=/tmp/asked bin=/usr/bin/systemctl
mkdir -p /run/systemd/system
[ ! -e $bin ] || mv $bin $bin.real
printf '#!/bin/sh\necho "$@" >>%s\n' $asked >$bin
chmod +x $bin
apt-get install -y -qq /tmp/newer/*.deb >/dev/null
rm $bin
rmdir -p --ignore-fail-on-non-empty /run/systemd/system
[ ! -e $bin.real ] || mv $bin.real $bin
grep -qx 'try-restart syntony-agent.service syntony-reactor.service' $asked || fail "the agent was not restarted"
grep -qx 'try-restart syntony-controller.service' $asked || fail "the controller was not restarted"
! grep '^stop .*syntony-[a-z]*\.service' $asked || fail "the upgrade stops a daemon, which try-restart leaves so"
[ "$(version syntony-agent)" = "$old.1" ] || fail "still $(version syntony-agent)"
grep -q '^# ours' /etc/syntony/agent.toml || fail "the configuration was overwritten"
[ "$(stat -c '%G %a' /etc/syntony/controller.toml)" = "syntony 640" ] || fail "mode after an upgrade"
[ -e /var/lib/syntony/ca/ca.key ] || fail "the upgrade lost the authority"
syntony --version

echo "== rollback"
apt-get install -y -qq --allow-downgrades "$given"/*.deb >/dev/null
[ "$(version syntony-agent)" = "$old" ] || fail "still $(version syntony-agent)"
[ -e /var/lib/syntony/ca/ca.key ] || fail "the rollback lost the authority"

echo "== an agent that goes leaves a controller's files"
apt-get purge -y -qq syntony-agent >/dev/null
[ ! -e /var/lib/syntony/spool ] || fail "the agent's spool is still there"
[ -e /var/lib/syntony/ca/ca.key ] || fail "the agent's purge took the authority"
rmdir /var/lib/syntony/state # `state_dir` of a controller, set by hand

echo "== remove, then purge"
apt-get remove -y -qq syntony-tools >/dev/null
[ ! -e /opt/syntony ] || fail "left: $(find /opt/syntony | head -n 5)"
[ -e /etc/syntony/controller.toml ] || fail "a removal took the configuration"
apt-get purge -y -qq syntony-controller syntony-tools >/dev/null
files >/tmp/files.after
users >/tmp/users.after
diff /tmp/files.before /tmp/files.after || fail "files are left, or gone"
diff /tmp/users.before /tmp/users.after || fail "users are left, or gone"
echo "packages: installed, upgraded, rolled back, removed without a trace"
