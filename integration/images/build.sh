#!/usr/bin/env bash
# Builds the test images from package registries, or finds those that are kept, and prints their references.
#   build.sh [kafka|mysql|clickhouse|mariadb]…      the first three unless named: MariaDB is for the long proofs
set -euo pipefail
cd "$(dirname "$0")"
cache=${SLOTLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slotline}
mkdir -p "$cache"
[ $# -gt 0 ] || set -- kafka mysql clickhouse
docker info >/dev/null 2>&1 || { echo "build.sh: no Docker daemon answers; do: integration/images/docker.sh" >&2; exit 1; }
for name; do
	case $name in
	kafka | mysql | clickhouse | mariadb) ;;
	*) echo "build.sh: no image $name; write: kafka, mysql, clickhouse or mariadb" >&2; exit 2 ;;
	esac
	# One build at a time: they share the base system, apt and the cache; a second caller then finds the image.
	flock "$cache/build.lock" "./$name.sh"
done
