#!/usr/bin/env bash
# Builds the MySQL test image from Debian's newest suite, and prints its reference.
image=mysql
. "$(dirname "$0")/lib.sh"

key=mysql-$(digest_of mysql.sh mysql-start.sh lib.sh)
found=$(present "$key"); [ -z "$found" ] || { echo "$found"; exit 0; }

workspace
suite=sid # the only suite that carries Oracle's MySQL; it moves, so the version is read after the install
bootstrap $suite "$work/root"
inside "$work/root" apt-get update
inside "$work/root" apt-get install -y mysql-server ||
	die "Debian's $suite no longer installs mysql-server; do: set SLOTLINE_TEST_MYSQL to a MySQL 8.0 or later (integration/README.md)"
version=$(chroot "$work/root" mysqld --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
[ "$(printf '8.4\n%s\n' "$version" | sort -V | head -n 1)" = 8.4 ] ||
	die "Debian's $suite has MySQL ${version:-of unknown version}, 8.4 or later is needed; do: set SLOTLINE_TEST_MYSQL to a server of your own"
say "mysql $version"

# A data directory made here starts in about one second, against eight for an empty one. Root may connect from
# anywhere without a password until the container starts, which sets the one it is given.
rm -rf "$work/root"/var/lib/mysql "$work/root"/etc/mysql/{mysql.conf.d,conf.d}/*
mkdir -p "$work/root"/var/lib/mysql "$work/root"/run/mysqld
inside "$work/root" mysqld --no-defaults --initialize-insecure --user=root --datadir=/var/lib/mysql
# Every server needs a uuid of its own: lanes tell a failover by it.
rm -f "$work/root/var/lib/mysql/auto.cnf"
install -m 755 "$images_dir/mysql-start.sh" "$work/root/usr/local/bin/mysql-start"
slim "$work/root"
ref=slotline-test/mysql:$version-${key#mysql-}
import_image "$work/root" "$ref" "$key" 'ENTRYPOINT ["/usr/local/bin/mysql-start"]' 'EXPOSE 3306' 'VOLUME /var/lib/mysql'
echo "$ref"
