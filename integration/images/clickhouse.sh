#!/usr/bin/env bash
# Builds the ClickHouse test image, the engine behind embedded/clickhouse, from this repository and npm, and prints its
# reference. It is not clickhouse-server: no users, TLS, replication or ON CLUSTER.
image=clickhouse
. "$(dirname "$0")/lib.sh"

embedded=$(cd "$images_dir/../../embedded" && pwd)
sources() { (cd "$embedded" && find go.sum clickhouse cmd/clickhouse-engine -type f ! -name '*_test.go' ! -path '*/testdata/*' | LC_ALL=C sort); }
key=clickhouse-$({ digest_of clickhouse.sh lib.sh; cd "$embedded" && sources | xargs sha256sum; } | sha256sum | cut -c1-12)
found=$(present "$key"); [ -z "$found" ] || { echo "$found"; exit 0; }

workspace
command -v go >/dev/null || die "needs Go to build the engine's front; do: install it, its version is in go.mod"
need npm npm
(cd "$embedded" && go build -trimpath -o "$work/clickhouse-engine" ./cmd/clickhouse-engine) >&2
library=$("$work/clickhouse-engine" fetch)
version=$(basename "$(dirname "$library")")

base "$work/root"
mkdir -p "$work/root/opt/clickhouse" "$work/root/var/lib/clickhouse"
install -m 755 "$work/clickhouse-engine" "$work/root/opt/clickhouse/"
# The library is half a gigabyte: linked instead of copied where the file system can.
ln "$library" "$work/root/opt/clickhouse/libchdb.so" 2>/dev/null || cp "$library" "$work/root/opt/clickhouse/libchdb.so"
slim "$work/root"
ref=slotline-test/clickhouse:$version-${key#clickhouse-}
import_image "$work/root" "$ref" "$key" 'EXPOSE 9000' 'VOLUME /var/lib/clickhouse' \
	'ENTRYPOINT ["/opt/clickhouse/clickhouse-engine","--listen","0.0.0.0:9000","--data","/var/lib/clickhouse","--library","/opt/clickhouse/libchdb.so"]'
echo "$ref"
