#!/bin/sh
# Make everything of a release in dist/, from what is committed: sdist, wheels (for aarch64 where the
# tools to cross-build it are), Debian packages for each suite, the build file of the container images,
# the Helm chart, a bill of materials (CycloneDX), the release notes and SHA256SUMS. As root.
#
#   make release            # SUITES="bookworm trixie"
set -eu
cd "$(dirname "$0")/../.."
git diff --quiet HEAD || { echo "commit first: a release is what is committed" >&2; exit 2; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
python=.venv/bin/python
rm -rf dist build/release
mkdir -p dist build/release/wheel

sh deploy/packages/wheel.sh dist
cp dist/*.whl build/release/wheel
for suite in ${SUITES:-bookworm trixie}; do
    GIVE=build/release/wheel TAKE=dist deploy/try-bare-root.sh "$suite" root \
        deploy/packages/in-bare-root.sh
done

# Of what an installation with everything has, as pip resolved it here.
$python -m venv build/release/everything
build/release/everything/bin/pip install -q "$(realpath build/release/wheel/*.whl)[controller,postgresql,report]"
$python -m cyclonedx_py environment build/release/everything/bin/python --pyproject pyproject.toml \
    --output-reproducible -o "dist/syntony-$version.cdx.json"
$python deploy/packages/web_components.py "dist/syntony-$version.cdx.json" web/package-lock.json

# Images are built of dist/ itself; the chart is packaged by Helm's library, which is for x86-64 only.
cp deploy/containers/Containerfile dist/
if $python -c 'import helm_python; helm_python.package("deploy/helm/syntony", destination="dist")'; then
    mv "dist/syntony-$version.tgz" "dist/syntony-chart-$version.tgz"
else
    echo "== WITHOUT the chart as one file" >&2
fi

status=0
deploy/packages/aarch64.sh dist || status=$?
[ $status = 0 ] || [ $status = 3 ] || exit $status

awk -v version="$version" '/^## / { on = $2 == version; next } on' CHANGELOG.md \
    >"dist/syntony-$version-notes.md"
[ -s "dist/syntony-$version-notes.md" ] ||
    { echo "CHANGELOG.md has no section $version" >&2; exit 2; }
(cd dist && sha256sum -- * >../build/release/SHA256SUMS && mv ../build/release/SHA256SUMS .)
ls -l dist
grep -q "^## $version (unreleased)" CHANGELOG.md &&
    echo "== CHANGELOG.md calls $version unreleased: give it its date before the tag" >&2
[ $status = 0 ] || echo "== WITHOUT a wheel for aarch64: what that lacks is said above" >&2
