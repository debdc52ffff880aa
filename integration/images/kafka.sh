#!/usr/bin/env bash
# Builds the Apache Kafka test image from Maven Central and Debian, and prints its reference.
image=kafka
. "$(dirname "$0")/lib.sh"

version=4.3.1
key=kafka-$(digest_of kafka.sh kafka-pom.xml kafka-start.sh lib.sh)
found=$(present "$key"); [ -z "$found" ] || { echo "$found"; exit 0; }

workspace
need java default-jre-headless
need mvn maven
say "fetches kafka $version with maven"
mkdir "$work/pom"
cp "$images_dir/kafka-pom.xml" "$work/pom/pom.xml"
(cd "$work/pom" && mvn -B -q -Dkafka.version=$version dependency:copy-dependencies -DoutputDirectory="$work/lib") >&2

base "$work/root"
inside "$work/root" apt-get update
inside "$work/root" apt-get install -y default-jre-headless
mkdir -p "$work/root/opt/kafka" "$work/root/var/lib/kafka/data"
mv "$work/lib" "$work/root/opt/kafka/lib"
install -m 755 "$images_dir/kafka-start.sh" "$work/root/opt/kafka/start"
slim "$work/root"
ref=slotline-test/kafka:$version-${key#kafka-}
import_image "$work/root" "$ref" "$key" 'ENTRYPOINT ["/opt/kafka/start"]' 'EXPOSE 9092' 'VOLUME /var/lib/kafka/data'
echo "$ref"
