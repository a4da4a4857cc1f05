#!/bin/sh
# Build sdist and wheel into DIRECTORY, the wheel from the sdist; the wheel gets the oldest manylinux
# tag that its symbols allow. libibverbs is the host's own: whoever has RDMA has it.
set -eu
out=${1:?usage: wheel.sh DIRECTORY}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m build --outdir "$work" .
mkdir -p "$out"
PATH=$PWD/.venv/bin:$PATH .venv/bin/auditwheel repair --exclude libibverbs.so.1 -w "$out" "$work"/*.whl
mv "$work"/*.tar.gz "$out/"
