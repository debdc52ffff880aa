# Shared by the image scripts; sourced, never run.
#
# An image is found by a label that holds the digest of everything it was made from in this folder, so a second build
# is a look-up, a changed recipe makes a new image, and nothing outside these scripts decides what is inside.

set -euo pipefail
images_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache_dir=${SLOTLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slotline}
# One suite, whatever the host runs: the images are then the same everywhere.
base_suite=${SLOTLINE_BASE_SUITE:-bookworm}

say() { printf '%s: %s\n' "${image:-images}" "$*" >&2; }
die() { say "$*"; exit 1; }

# digest_of FILE… prints a short digest of names and contents.
digest_of() { (cd "$images_dir" && sha256sum "$@") | sha256sum | cut -c1-12; }

# present KEY prints the reference of the image made with this key, if it is there.
present() {
	docker images --filter "label=slotline.key=$1" --format '{{.Repository}}:{{.Tag}}' | grep -v '<none>' | head -n 1 || true
}

# apt_install PACKAGE… installs on this machine what a recipe needs, unless SETUP=0.
apt_install() {
	[ "${SETUP:-1}" != 0 ] || die "needs $*, and SETUP=0 forbids installing it; do: apt-get install $*"
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "needs $*; do: install it (this is not root on Debian)"
	say "installs $*"
	# Another apt may be at work (unattended upgrades on a fresh machine): wait for it instead of failing.
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 update -qq >&2 || true
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 \
		install -y -qq --no-install-recommends "$@" >"$cache_dir/apt.log" 2>&1 || { tail -n 20 "$cache_dir/apt.log" >&2; die "apt-get install $* failed"; }
}

# need COMMAND PACKAGE installs the package where the command is missing.
need() { command -v "$1" >/dev/null || apt_install "$2"; }

# debian_mirror prints the mirror that this machine's apt uses for Debian, or nothing (debootstrap then has its own).
debian_mirror() {
	if [ -n "${SLOTLINE_DEBIAN_MIRROR:-}" ]; then printf '%s\n' "$SLOTLINE_DEBIAN_MIRROR"; return; fi
	apt-get indextargets --format '$(ORIGIN)|$(COMPONENT)|$(REPO_URI)' 2>/dev/null |
		awk -F'|' '$1 == "Debian" && $2 == "main" && $3 !~ /security/ { print $3; exit }'
}

# bootstrap SUITE DIR [PACKAGE…] makes a minimal system in which apt works as it does on this machine and no service starts.
bootstrap() {
	local suite=$1 dir=$2; shift 2
	[ "$(id -u)" = 0 ] || die "debootstrap needs root; do: run as root, or name an image in the environment (integration/README.md)"
	need debootstrap debootstrap
	say "debootstrap $suite"
	# shellcheck disable=SC2046 # the mirror is one word or none
	debootstrap --variant=minbase "$suite" "$dir" $(debian_mirror) >"$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; die "debootstrap $suite failed"; }
	printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
	chmod 755 "$dir/usr/sbin/policy-rc.d"
	echo force-unsafe-io >"$dir/etc/dpkg/dpkg.cfg.d/unsafe-io" # what a crash would spoil is built again
	mkdir -p "$dir/etc/ssl/certs"
	[ -e "$dir/etc/ssl/certs/ca-certificates.crt" ] || cp /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/" 2>/dev/null || true
	apt-config dump | grep -E '^Acquire::https?::' >"$dir/etc/apt/apt.conf.d/90host" || true
	# A suite that moves may be past its Valid-Until on a mirror; the signature is still checked.
	printf 'Acquire::Check-Valid-Until "false";\nAcquire::Retries "3";\nAPT::Install-Recommends "false";\n' >"$dir/etc/apt/apt.conf.d/91build"
}

# inside DIR COMMAND… runs a command in the new system, with /proc, which Java's and MySQL's install steps read.
inside() {
	local dir=$1; shift
	mountpoint -q "$dir/proc" || mount -t proc proc "$dir/proc"
	local rc=0
	DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$dir" "$@" >>"$dir.log" 2>&1 </dev/null || rc=$?
	umount "$dir/proc"
	[ $rc = 0 ] || { tail -n 30 "$dir.log" >&2; say "in the new system: $* ended with $rc"; return $rc; }
}

# slim DIR drops what no server reads.
slim() {
	rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/cache/apt/archives/*.deb "$1"/usr/share/{doc,man,locale,info}/* \
		"$1"/etc/apt/apt.conf.d/90host "$1"/tmp/*
}

# import_image DIR REFERENCE KEY CHANGE… turns a directory into an image.
import_image() {
	local dir=$1 ref=$2 key=$3; shift 3
	local changes=(--change "LABEL slotline.key=$key")
	local c; for c in "$@"; do changes+=(--change "$c"); done
	tar -C "$dir" --one-file-system -c . | docker import "${changes[@]}" - "$ref" >/dev/null
	say "built $ref"
	# An image of an older recipe is only in the way; one that a container still uses stays.
	docker images --filter "label=slotline.key" --format '{{.Repository}}:{{.Tag}}' | grep "^${ref%%:*}:" | grep -vxF "$ref" |
		xargs -r docker rmi >/dev/null 2>&1 || true
}

# workspace sets $work to a scratch directory that is gone when the script ends.
workspace() {
	mkdir -p "$cache_dir"
	work=$(mktemp -d "$cache_dir/build.XXXXXX")
	trap 'umount "$work"/*/proc 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
}

# base DIR fills DIR with the base system, which is made once and kept as an archive.
base() {
	local dir=$1 archive=$cache_dir/base-$base_suite.tar
	mkdir -p "$dir"
	if [ ! -s "$archive" ]; then
		bootstrap "$base_suite" "$work/base"
		tar -C "$work/base" --one-file-system -cf "$archive.part" .
		mv "$archive.part" "$archive"
		rm -rf --one-file-system "$work/base"
	fi
	tar -C "$dir" -xf "$archive"
}
