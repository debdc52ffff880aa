#!/usr/bin/env bash
# Starts mysqld on the baked data directory. As in the official image: MYSQL_ROOT_PASSWORD and MYSQL_DATABASE in the
# environment, server options as arguments (with or without "mysqld" before them).
set -euo pipefail
[ "${1:-}" != mysqld ] || shift
init=/run/mysqld/init.sql
password=${MYSQL_ROOT_PASSWORD:-}
password=${password//\\/\\\\}
password=${password//\'/\'\'}
{
	echo "CREATE USER IF NOT EXISTS 'root'@'%';"
	echo "ALTER USER 'root'@'%' IDENTIFIED BY '$password';"
	echo "GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;"
	echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$password';"
	[ -z "${MYSQL_DATABASE:-}" ] || echo "CREATE DATABASE IF NOT EXISTS \`$MYSQL_DATABASE\`;"
} >$init
chmod 600 $init
exec mysqld --no-defaults --user=root --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --mysqlx=OFF --init-file=$init "$@"
