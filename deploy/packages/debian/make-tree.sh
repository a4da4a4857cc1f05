#!/bin/sh
# Make the files of the packages below TREE: a virtual environment that will live in /opt/syntony,
# parted into what every host needs (tools) and what only controllers need (controller).
#
#   make-tree.sh WHEEL VENV TREE
set -eu
wheel=$1 venv=$2 tree=$3
home=opt/syntony
rm -rf "$venv" "$tree"
mkdir -p "$tree/tools/opt" "$tree/controller/$home"

python3 -m venv "$venv-pip"    # the installer stays outside
python3 -m venv --without-pip "$venv"
site=lib/$(readlink -f "$venv/bin/python3" | sed 's|.*/||')/site-packages
install_into_venv() { "$venv-pip/bin/pip" --python "$venv/bin/python3" install -q --no-compile "$@"; }
packages() { (cd "$venv/$site" && find . -mindepth 1 -maxdepth 1 ! -name __pycache__ | sort); }

install_into_venv "$wheel"
packages >"$tree/core"
# As files under the final path see themselves: tracebacks, and no rebuild when times change.
compile() { (cd "$venv" && "./bin/python3" -m compileall -q -p "/$home" \
    --invalidation-mode unchecked-hash -j 2 "$site" || true); }

# The agent's environment must not grow with the controller's: a later version of a core package
# that an extra asks for would be in both.
install_into_venv "$wheel[controller,postgresql]"
packages >"$tree/all"
compile

rm -rf "$venv"/bin/activate* "$venv"/bin/Activate.ps1
find "$venv/bin" -type f ! -name syntony -delete
sed -i "1s|^#!.*|#!/$home/bin/python3|" "$venv/bin/syntony"
sed -i "s|$venv|/$home|g; /^command/d" "$venv/pyvenv.cfg"
python=$(readlink -f "$venv/bin/python3" | sed 's|.*/||')
ln -sfn "/usr/bin/$python" "$venv/bin/python3" # what the package depends on, not Debian's default
cp -a "$venv" "$tree/tools/$home"
mkdir -p "$tree/controller/$home/$site"
comm -13 "$tree/core" "$tree/all" | while read -r package; do
    mv "$tree/tools/$home/$site/$package" "$tree/controller/$home/$site/"
done

echo "$python" >"$tree/python"

# Programs that people type, their pages and completion.
mkdir -p "$tree/tools/usr/bin" "$tree/tools/usr/share/man/man1" "$tree/tools/usr/share/syntony"
ln -s "/$home/bin/syntony" "$tree/tools/usr/bin/syntony"
"$venv/bin/python3" deploy/packages/man_pages.py "$tree/tools/usr/share/man/man1"
completion() { # completion SHELL FILE
    mkdir -p "$(dirname "$tree/tools/usr/share/$2")"
    _SYNTONY_COMPLETE=$1_source "$venv/bin/python3" -m syntony >"$tree/tools/usr/share/$2"
}
completion bash bash-completion/completions/syntony
completion zsh zsh/vendor-completions/_syntony
completion fish fish/vendor_completions.d/syntony.fish
for part in slurm prometheus alertmanager grafana kubernetes helm; do
    cp -a "deploy/$part" "$tree/tools/usr/share/syntony/"
done
mkdir -p "$tree/tools/usr/share/syntony/systemd"
cp -a deploy/systemd/*.d "$tree/tools/usr/share/syntony/systemd/"
