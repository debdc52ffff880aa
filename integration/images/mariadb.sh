#!/usr/bin/env bash
# Builds the MariaDB test image from the Debian suite that the other images have, and prints its reference.
image=mariadb
. "$(dirname "$0")/lib.sh"

key=mariadb-$(digest_of mariadb.sh mariadb-start.sh lib.sh)
found=$(present "$key"); [ -z "$found" ] || { echo "$found"; exit 0; }

workspace
base "$work/root"
inside "$work/root" apt-get update
inside "$work/root" apt-get install -y mariadb-server
version=$(chroot "$work/root" mariadbd --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
say "mariadb $version"

# As in the image of MySQL: a data directory that is there, and root without a password until the container starts.
rm -rf "$work/root"/var/lib/mysql "$work/root"/etc/mysql/{mariadb.conf.d,conf.d}/*
mkdir -p "$work/root"/var/lib/mysql "$work/root"/run/mysqld
inside "$work/root" mariadb-install-db --no-defaults --user=root --datadir=/var/lib/mysql --auth-root-authentication-method=normal --skip-test-db --force # it asks for the name of this machine
install -m 755 "$images_dir/mariadb-start.sh" "$work/root/usr/local/bin/mariadb-start"
slim "$work/root"
ref=slotline-test/mariadb:$version-${key#mariadb-}
import_image "$work/root" "$ref" "$key" 'ENTRYPOINT ["/usr/local/bin/mariadb-start"]' 'EXPOSE 3306' 'VOLUME /var/lib/mysql'
echo "$ref"
