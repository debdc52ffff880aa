#!/usr/bin/env bash
# Runs all tests, after setting up what they need. The last line is the count over all modules.
#   test.sh [soak]
# SLOTLINE_INTEGRATION=off|auto|must   SLOTLINE_PROOFS=1 runs the long proofs too   SETUP=0 installs and starts nothing   TESTFLAGS are added to go test
. "$(dirname "$0")/lib.sh"

what=${1:-test}
mode=${SLOTLINE_INTEGRATION:-auto}
[ "$what" != soak ] || mode=${SLOTLINE_INTEGRATION:-must} # hours that skip what they are for would help nobody
export SLOTLINE_INTEGRATION=$mode
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# run MODULE PACKAGES FLAGS… runs tests of one module; a failure is noted in $results, and the other modules still run.
run() {
	local module=$1 packages=$2 as=$results/$(name_of "$1" | tr ' /' '--'); shift 2
	say "go test in $(name_of "$module")"
	# shellcheck disable=SC2086 # several flags
	(cd "$module" && go run $gotestsum --format pkgname --format-hide-empty-pkg --jsonfile "$as.json" -- \
		-tags $tags "$@" ${TESTFLAGS:-} $packages) || touch "$as.failed"
}

setup() {
	[ "$mode" != off ] || return 0
	if [ -n "${SLOTLINE_TEST_KAFKA:-}" ] && [ -n "${SLOTLINE_TEST_MYSQL:-}" ] && [ -n "${SLOTLINE_TEST_CLICKHOUSE:-}" ] && ! docker info >/dev/null 2>&1; then
		return 0 # tests that end a server of their own will say that they cannot
	fi
	say "servers for the tests"
	"$root/integration/images/docker.sh" || return
	local found
	found=$(cd "$root/integration" && go run ./cmd/images) || return
	eval "$found"
}

if ! setup; then
	[ "$mode" != must ] || { echo "SLOTLINE_INTEGRATION=must, and the servers cannot be had (above)"; exit 1; }
	echo "not all servers can be had (above): the tests that need them are skipped, and listed"
fi

if [ "$what" = soak ]; then
	export SLOTLINE_SOAK=1
	run "$root/integration" ./... -p 1 -count 1 -timeout 3h
else
	# Beside the other modules' tests: the first of them, one at a time, mostly wait for servers. So do the parallel ones
	# after them, four at a time; the long proofs keep both CPUs busy. Two packages at a time: each starts servers of its
	# own. Never from the cache: the servers are not among its inputs. What it prints waits in the pipe.
	parallel=4
	[ -z "${SLOTLINE_PROOFS:-}" ] || parallel=2
	exec 3< <(run "$root/integration" ./... -p 2 -parallel $parallel -count 1 -timeout 25m 2>&1)
	integration=$!
	say "beside what follows run the tests in integration; they are listed at the end"
	for module in $(modules); do
		if [ "$module" = "$root/integration" ]; then continue; fi
		run "$module" ./... -timeout 10m
	done
	cat <&3
	wait "$integration"
fi

say "took $SECONDS s"

# A package that does not build, or dies, has no failed test to count: count the package.
cat "$results"/*.json | awk '
	!/"Action":"(pass|fail|skip)"/ { next }
	{ match($0, /"Package":"[^"]*"/); package = substr($0, RSTART, RLENGTH) }
	/"Test":"/ { if (/"Action":"pass"/) passed++; else if (/"Action":"skip"/) skipped++; else { failed++; named[package] = 1 } next }
	/"Action":"fail"/ && !(package in named) { failed++ }
	END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 }' && [ -z "$(find "$results" -name '*.failed')" ]
