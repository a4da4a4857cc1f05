#!/usr/bin/env bash
# Run a command in a fresh clone of this repository inside a bare Debian: git and make, nothing
# else. This is how `make setup`, `make test`, `make demo` and docs/how-to/deploy.md are tried on
# machines that are not ours.
#
#   deploy/try-bare-root.sh bookworm root make demo      # as root: installs what it lacks
#   deploy/try-bare-root.sh trixie user make setup       # as a user: must name the packages
#
# Needs root, debootstrap, and an hour at most. Downloaded base systems are kept below $ROOTS
# (default /var/tmp/syntony-roots); every call works in a new copy, removed at the end unless KEEP=1.
# KEEP=1 prints the copy's path; REUSE=PATH runs in such a copy again, without a fresh clone.
# GIVE=DIRECTORY copies what is in it to ~/given first; TAKE=DIRECTORY gets what is in ~/taken.
set -euo pipefail

suite=${1:?usage: try-bare-root.sh bookworm|trixie root|user COMMAND...}
who=${2:?usage: try-bare-root.sh bookworm|trixie root|user COMMAND...}
shift 2
roots=${ROOTS:-/var/tmp/syntony-roots}
repository=$(cd "$(dirname "$0")/.." && pwd)
base=$roots/$suite
root=${REUSE:-} partial=
clean() { # also after an error or Ctrl-C
    [ -z "$partial" ] || rm -rf --one-file-system "$partial"
    if [ -n "${KEEP:-}${REUSE:-}" ]; then
        [ -z "$root" ] || echo "kept: REUSE=$root" >&2
    elif [ -n "$root" ]; then
        rm -rf --one-file-system "$root"
    fi
}
trap clean EXIT

if [ -z "$root" ] && [ ! -d "$base" ]; then
    mkdir -p "$roots"
    partial=$(mktemp -d "$base.partial.XXXXXX") # another call may be making the same
    chmod 755 "$partial"
    debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$partial"
    mv -T "$partial" "$base" 2>/dev/null || [ -d "$base" ]
fi

if [ -z "$root" ]; then
    root=$(mktemp -d "$roots/$suite-$who.XXXXXX")
    cp -a --reflink=auto "$base/." "$root"
    chroot "$root" useradd --create-home user
    # What this machine needs to reach its package mirrors, if anything.
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/apt/apt.conf \
        /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || cp -L "$file" "$root$file"
    done
    home=$root/root
    [ "$who" = root ] || home=$root/home/user
    git clone --quiet "$repository" "$home/syntony"
    [ "$who" = root ] || chroot "$root" chown -R user: /home/user/syntony
fi

work=/root/syntony home=/root
if [ "$who" != root ]; then
    work=/home/user/syntony home=/home/user
fi
# shellcheck disable=SC2207 # KEY=VALUE words
environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "HOME=$home"
    LANG=C.UTF-8 $(env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_FILE|[a-z]+_proxy)=' | grep -v ' ' || true))

if [ -n "${GIVE:-}" ]; then
    mkdir -p "$root$home/given" && cp -a "$GIVE/." "$root$home/given"
    chown -R --reference="$root$home" "$root$home/given"
fi
export root work who
status=0
# Mounts and processes end with the namespaces; nothing is left mounted in the copy. Not a chroot:
# the kernel makes no user namespaces inside one, and a lab needs them.
# shellcheck disable=SC2016 # expanded by the inner shells
unshare --mount --pid --fork --kill-child bash -euc '
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    cd "$root"
    pivot_root . mnt
    umount -l /mnt
    exec setpriv --reuid "$who" --regid "$who" --init-groups env -i "$@"' \
    bare "${environment[@]}" bash -c 'cd "$1" && shift && exec "$@"' command "$work" "$@" || status=$?

if [ -n "${TAKE:-}" ] && [ -d "$root$home/taken" ]; then
    mkdir -p "$TAKE" && cp -a "$root$home/taken/." "$TAKE"
fi
exit $status
