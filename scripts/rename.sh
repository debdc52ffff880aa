#!/usr/bin/env bash
# Changes the module path everywhere: go.mod files, imports, docs.
#   rename.sh NEW/MODULE/PATH
. "$(dirname "$0")/lib.sh"

new=${1:-}
[[ $new =~ ^[a-z0-9.-]+(/[A-Za-z0-9._~-]+)+$ ]] || { echo "rename: \"$new\" is not a module path; write: make rename MODULE=example.com/you/slotline" >&2; exit 2; }
cd "$root"
old=$(sed -n 's/^module //p' go.mod)
[ "$old" != "$new" ] || { echo "the module path is $new already"; exit 0; }
# Whole path elements only: a longer path that begins or ends like it is another module's.
export old new
git ls-files -co --exclude-standard -z | xargs -0 grep -lIF --null -e "$old" -- | xargs -0 \
	perl -pi -e 's#(?:(?<![\w.~/-])|(?<=://))\Q$ENV{old}\E(?![\w~-])#$ENV{new}#g'
# The order of imports may have changed with the name.
gofmt -w $(git ls-files -co --exclude-standard '*.go')
for module in $(modules); do (cd "$module" && go build -tags $tags ./...); done
echo "the module path is now $new (was $old); do: git diff, make test, commit"
