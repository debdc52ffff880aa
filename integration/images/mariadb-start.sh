#!/usr/bin/env bash
# Starts mariadbd on the baked data directory. The environment and the arguments are those of the image of MySQL.
set -euo pipefail
init=/run/mysqld/init.sql
password=${MYSQL_ROOT_PASSWORD:-}
password=${password//\\/\\\\}
password=${password//\'/\'\'}
{
	echo "CREATE USER IF NOT EXISTS 'root'@'%';"
	echo "ALTER USER 'root'@'%' IDENTIFIED BY '$password';"
	echo "GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;"
	echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$password';"
} >$init
chmod 600 $init
exec mariadbd --no-defaults --user=root --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --init-file=$init "$@"
