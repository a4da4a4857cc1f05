#!/usr/bin/env bash
# Run a controller and an agent from their images as the chart's pods run them, and see that they are
# well: read-only root, the chart's users, capabilities, volumes, scripts and commands. No kubelet:
#
#   buildah unshare unshare --net tests/deploy/pods.sh CHART CONTROLLER AGENT
#
# CHART holds what tests/deploy/test_images.py renders, CONTROLLER and AGENT are mounted images.
set -euo pipefail
chart=${1:?CHART} controller=${2:?CONTROLLER} agent=${3:?AGENT}
pods=$(mktemp -d)
names="127.0.0.1 localhost syntony-controller-0.syntony-controller.fleet.svc syntony-enrol.fleet.svc syntony-console.fleet.svc"
export chart

fail() { echo "pods: $*" >&2; tail -n 20 "$pods"/*.log >&2; exit 1; }
wait_for() { # wait_for WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        sleep 1
    done
    fail "no $what after five minutes"
}
end_pods() { # unshare, a child of each job, is deaf to all but SIGKILL, and takes its children along
    local job children
    for job in $(jobs -pr); do
        children=()
        [ ! -e "/proc/$job" ] || read -ra children <"/proc/$job/task/$job/children" || true # it has no end of line
        [ ${#children[@]} = 0 ] || kill -KILL "${children[@]}"
    done
}
trap end_pods EXIT
# shellcheck disable=SC2016 # expanded by the inner shell
pod() { # pod IMAGE STATE UID CAPABILITIES COMMAND...: in one container of a pod
    env --ignore-environment "PATH=$PATH" "root=$1" "state=$2" "user=$3" "capabilities=$4" "names=$names" \
        "chart=$chart" unshare --mount --pid --fork --kill-child bash -euc '
        mount --make-rprivate /
        mount --bind "$root" "$root"
        for volume in etc/syntony var/lib/syntony var/lib/syntony-ca run/syntony-controller run/syntony tmp \
            config authority tokens; do # a runtime makes what the image has not
            mkdir -p "$root/$volume" "$state/$volume"
            chown "$user:$user" "$state/$volume"
        done
        echo "$names" >"$state/hosts"
        mount -o remount,bind,ro "$root"
        for volume in etc/syntony var/lib/syntony var/lib/syntony-ca run/syntony-controller run/syntony tmp; do
            mount --bind "$state/$volume" "$root/$volume"
        done
        for volume in config authority tokens; do
            mount --bind "$state/$volume" "$root/$volume"
            mount -o remount,bind,ro "$root/$volume"
        done
        mount --bind "$state/hosts" "$root/etc/hosts"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        exec chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
            --bounding-set "-all$capabilities" --inh-caps -all env --ignore-environment \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin POD_NAME=syntony-controller-0 \
            NODE_NAME=gpu001 "$@"' pod "${@:5}"
}
in_controller() { pod "$controller" "$pods/controller" 8620 "" "$@"; }
in_agent() { pod "$agent" "$pods/agent" 0 "$@"; } # in_agent CAPABILITIES COMMAND...
command_of() { mapfile -t command <"$chart/$1.command"; }

ip link set lo up
ip link add eth2 type veth peer name far-eth2
ip address add 192.0.2.2/31 dev eth2
ip link set eth2 up
ip link set far-eth2 up

echo "== controller"
mkdir -p "$pods/controller" "$pods/agent/tokens"
cp -r "$chart/controller" "$pods/controller/config"
cp -r "$chart/agent" "$pods/agent/config"
syntony_enrol=(syntony enrol authority /tmp/ca --address localhost)
in_controller "${syntony_enrol[@]}" >/dev/null
mkdir -p "$pods/controller/authority"
mv "$pods/controller/tmp/ca/ca.crt" "$pods/controller/tmp/ca/ca.key" "$pods/controller/authority/"
cp "$pods/controller/authority/ca.crt" "$pods/agent/config/ca.crt"
in_controller sh -c 'touch /usr/x' 2>/dev/null && fail "the controller can write to its image"
in_controller sh /config/prepare.sh >/dev/null
command_of controller
in_controller "${command[@]}" >"$pods/controller.log" 2>&1 &
wait_for "controller" bash -c '</dev/tcp/127.0.0.1/8443' # its readiness probe
in_controller cat /proc/self/status | grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)'

echo "== console"
in_controller /opt/syntony/bin/python3 -c '
import ssl, urllib.request
trusted = ssl.create_default_context(cafile="/var/lib/syntony-ca/tls/ca.crt")
page = urllib.request.urlopen("https://syntony-console.fleet.svc:8445/", context=trusted)
text = page.read().decode()
assert page.status == 200 and "<html" in text.lower(), text[:200]
print("console:", page.status, len(text), "bytes")'

echo "== agent"
token=$(in_controller syntony enrol token agent gpu001 --controller unix:/run/syntony-controller/controller.sock)
printf '%s' "$token" >"$pods/agent/tokens/gpu001"
in_agent "" sh -c 'touch /usr/x' 2>/dev/null && fail "the agent can write to its image"
in_agent "" sh /config/join.sh >/dev/null
for part in reactor agent; do
    command_of "$part"
    in_agent "$(cat "$chart/$part.capabilities")" "${command[@]}" >"$pods/$part.log" 2>&1 &
done
wait_for "reactor" test -S "$pods/agent/run/syntony/reactor" # the startup probes
scrape() { curl --silent --fail http://127.0.0.1:9862/metrics; }
wait_for "metrics of the agent" scrape
attached() {
    in_controller syntony agent parts gpu001 --controller unix:/run/syntony-controller/controller.sock --json
}
wait_for "agent in the fleet" attached
attached | head -c 300
echo
end_pods
wait || true
trap - EXIT
rm -rf "$pods"
echo "pods: well, with a read-only root"
