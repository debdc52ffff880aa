#!/usr/bin/env bash
# gofmt, vet and staticcheck over every module, and the tests that hold the shape of the code.
. "$(dirname "$0")/lib.sh"

bad=0
say "gofmt"
unformatted=$(cd "$root" && gofmt -l $(git ls-files -co --exclude-standard '*.go'))
[ -z "$unformatted" ] || { printf '%s\n' "$unformatted" "do: gofmt -w on these"; bad=1; }
for module in $(modules); do
	cd "$module"
	say "vet $(name_of "$module")"
	go vet -tags $tags ./... || bad=1
	say "staticcheck $(name_of "$module")"
	go run $staticcheck -tags $tags ./... || bad=1
done
say "import direction"
(cd "$root" && go test -run 'ImportDirection|BinaryLinks|ServiceLinks' ./cmd/slotline ./producer) || bad=1
exit $bad
