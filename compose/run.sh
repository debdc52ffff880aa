#!/usr/bin/env bash
# Runs the line of compose.yaml.
#   run.sh up       build slotline, start everything, wait until the line is ready
#   run.sh check    emit two events by plain SQL and wait until they are in their shard and ClickHouse has them
#   run.sh status   what `slotline status` says
#   run.sh down     stop everything and delete its data
set -euo pipefail
cd "$(dirname "$0")"
project=${COMPOSE_PROJECT_NAME:-slotline}
password=${MYSQL_PASSWORD:-slotline}

compose() {
	if docker compose version >/dev/null 2>&1; then docker compose -p "$project" -f compose.yaml "$@"
	elif command -v docker-compose >/dev/null; then docker-compose -p "$project" -f compose.yaml "$@"
	else echo "compose: neither docker compose nor docker-compose is there; do: install one (Debian: apt-get install docker-compose)" >&2; exit 1
	fi
}

# within SECONDS WHAT COMMAND… repeats the command until it succeeds.
within() {
	local end=$((SECONDS + $1)) what=$2; shift 2
	until "$@"; do
		if [ $SECONDS -ge $end ]; then
			echo "compose: $what: not within the time given; the last lines of slotline:" >&2
			compose logs --tail=40 apply slotline >&2 || true
			exit 1
		fi
		sleep 0.5
	done
	echo "compose: $what"
}

sql() { compose exec -T -e MYSQL_PWD="$password" "$1" mysql -uroot -h127.0.0.1 -N "$2" 2>/dev/null; }

applied() { local id; id=$(compose ps -aq apply) && [ "$(docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' "$id")" = "exited 0" ]; }

# Plain HTTP by bash: curl may not be there.
http() { { exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3 && cat <&3; } 2>/dev/null; }
ready() { http /readyz | head -n 1 | grep -q ' 200 '; }

# emit TENANT ID ORIGIN appends one event to the outbox as docs/formats.md says. A real service does it in the
# transaction that writes its own rows.
emit() {
	local lane
	lane=$(sql outbox flights <<<"SELECT LPAD(CRC32('$1') % 4, 2, '0')")
	sql outbox flights <<-SQL
		SET time_zone = '+00:00';
		INSERT INTO slotline_outbox_$lane (event_id, tbl, tenant, entity_id, op, month, codec, created_at, payload)
		VALUES (RANDOM_BYTES(16), 'flights', '$1', '$2', 1, 201301, 1, UTC_TIMESTAMP(6),
		        '{"carrier":"$1","flight_id":$2,"sched_dep":"2013-01-01T10:15:00.000000Z","origin":"$3","cancelled":false,"arr_delay":11}');
	SQL
}

# in_shards finds the rows in the two shards together; each is in one of them.
in_shards() {
	local n=0 s
	for s in s1 s2; do
		n=$((n + $(sql $s "flights_$s" <<<"SELECT COUNT(*) FROM flights_201301 WHERE flight_id IN ($1)" || echo 0)))
	done
	[ $n = "$2" ]
}

caught_up() { compose exec -T slotline /usr/bin/slotline status 2>/dev/null | grep -qE '^clickhouse .* 0 ev .* ok'; }

case ${1:-} in
up)
	if [ -z "${SLOTLINE_IMAGE:-}" ]; then
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		(cd .. && CGO_ENABLED=0 GOOS=linux go build -trimpath -o "$work/slotline" ./cmd/slotline)
		docker build -q -t slotline:local -f Dockerfile "$work"
		docker image prune -f --filter label=slotline.image=local >/dev/null # the one of an earlier build
	fi
	compose up -d
	within 120 "the layout is applied" applied
	within 60 "the line is ready, /readyz on 127.0.0.1:9464" ready
	;;
check)
	id=$((RANDOM * 32768 + RANDOM))
	emit UA $id EWR
	emit DL $((id + 1)) JFK
	within 60 "two events are in their shards" in_shards "$id,$((id + 1))" 2
	within 60 "ClickHouse has all that is in the topic" caught_up
	compose exec -T slotline /usr/bin/slotline status # exit status 4 when anything is halted
	;;
status) compose exec -T slotline /usr/bin/slotline status ;;
down) compose down -v --remove-orphans ;;
*)
	sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
