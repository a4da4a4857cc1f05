#!/bin/sh
# Build the Debian packages of a wheel for the suite that this runs in.
#
#   deploy/packages/build-deb.sh dist/syntony-0.1.0-….whl dist
#
# Needs debhelper and python3-venv, and the Python packages that the wheel requires (pip's sources).
set -eu
wheel=$(realpath "${1:?usage: build-deb.sh WHEEL DIRECTORY}")
out=$(realpath -m "${2:?usage: build-deb.sh WHEEL DIRECTORY}")
top=$(cd "$(dirname "$0")/../.." && pwd)
version=$(basename "$wheel" | cut -d- -f2)
# shellcheck disable=SC1091 # VERSION_ID
suite=$(. /etc/os-release && echo "$ID$VERSION_ID" | sed 's/debian/deb/; s/ubuntu/ubuntu/')
: "${SOURCE_DATE_EPOCH:=$(git -C "$top" log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work/syntony-$version
mkdir "$build"
cp -a "$top/deploy" "$build/deploy"
cp -a "$top/deploy/packages/debian" "$build/debian"
cat >"$build/debian/changelog" <<CHANGELOG
syntony ($version-1+$suite) unstable; urgency=medium

  * See CHANGELOG.md of Syntony $version.

 -- The Syntony developers <developers@syntony.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
cp "$top/LICENSE" "$build/debian/copyright"
(cd "$build" && WHEEL=$wheel dpkg-buildpackage -b -us -uc -rfakeroot -d)
mkdir -p "$out"
mv "$work"/*.deb "$out/"
ls -l "$out"/*+"$suite"_*.deb
