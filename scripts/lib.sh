# Shared by the scripts here; sourced, never run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
gotestsum=gotest.tools/gotestsum@v1.13.0
# Without it go-mysql-server, which the demo embeds, compiles a C library.
tags=gms_pure_go

say() { printf '\n== %s\n' "$*"; }

# modules prints the folder of each module, the root module first.
modules() {
	echo "$root"
	find "$root" -mindepth 2 -name go.mod -not -path '*/testdata/*' -not -path "$root/.*" -exec dirname {} \; | LC_ALL=C sort
}

# name_of MODULE_DIR is how messages call it.
name_of() { [ "$1" = "$root" ] && echo "the root module" || echo "${1#"$root"/}"; }
