#!/usr/bin/env bash
# Build both images without root and without a registry, and run what they are for:
#
#   tests/deploy/images.sh BASE.tar DEBS SUITE STORAGE CHART    # as a user with subordinate ids
#
# BASE.tar is a debootstrapped Debian: it stands for the base image. Isolation is buildah's chroot,
# storage its vfs: what works where neither a container runtime nor overlay mounts are allowed. CHART is
# for tests/deploy/pods.sh, which runs the daemons.
set -euo pipefail
base=${1:?BASE.tar} debs=${2:?DEBS} suite=${3:?SUITE} storage=${4:?STORAGE} chart=${5:?CHART}
here=$(cd "$(dirname "$0")/../.." && pwd)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
export XDG_RUNTIME_DIR=$storage/run XDG_DATA_HOME=$storage/data XDG_CONFIG_HOME=$storage/config
export TMPDIR=$storage/tmp
mkdir -p "$XDG_RUNTIME_DIR" "$XDG_CONFIG_HOME/containers" "$TMPDIR"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$XDG_CONFIG_HOME/containers/policy.json"

echo "== the base image"
container=$(buildah from scratch)
buildah add --quiet "$container" "$base" / >/dev/null
buildah commit --quiet "$container" localhost/base:1 >/dev/null
buildah rm "$container" >/dev/null

build() { # build TARGET
    buildah build --quiet --pull-never --target "$1" --tag "localhost/syntony-$1:1" \
        --build-arg BASE=localhost/base:1 --build-arg "SUITE=$suite" \
        -f "$here/deploy/containers/Containerfile" "$debs"
}
in_image() { # in_image IMAGE COMMAND...
    local container status=0
    container=$(buildah from --pull-never "$1")
    shift
    buildah run "$container" -- "$@" || status=$?
    buildah rm "$container" >/dev/null
    return $status
}

echo "== agent"
build agent
in_image localhost/syntony-agent:1 syntony --version
[ "$(in_image localhost/syntony-agent:1 id -u)" = 8620 ]
in_image localhost/syntony-agent:1 sh -c 'syntony audit run --local --json; [ $? -le 3 ]' >/dev/null
in_image localhost/syntony-agent:1 syntony config check /etc/syntony/agent.toml && exit 1 # no agent's files
echo "== controller"
build controller
in_image localhost/syntony-controller:1 sh -euc '
    test "$(id -u)" = 8620
    /opt/syntony/bin/python3 -c "import chdb, psycopg"
    syntony enrol authority /tmp/ca --address localhost
    syntony config check /etc/syntony/controller.toml'
echo "== as pods"
# shellcheck disable=SC2016 # expanded by the inner shell
buildah unshare bash -euc '
    controller=$(buildah from --pull-never localhost/syntony-controller:1)
    agent=$(buildah from --pull-never localhost/syntony-agent:1)
    unshare --net "$1" "$2" "$(buildah mount "$controller")" "$(buildah mount "$agent")"
    buildah rm "$controller" "$agent" >/dev/null' pods "$here/tests/deploy/pods.sh" "$chart"
buildah images
echo "images: built and run without root"
