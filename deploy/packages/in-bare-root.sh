#!/bin/sh
# Build the Debian packages of ~/given/*.whl into ~/taken, in a bare Debian, as root:
#
#   GIVE=dist TAKE=dist deploy/try-bare-root.sh trixie root deploy/packages/in-bare-root.sh
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends \
    debhelper dpkg-dev fakeroot python3 python3-venv >/dev/null
deploy/packages/build-deb.sh ~/given/*.whl ~/taken
