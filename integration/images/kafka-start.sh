#!/usr/bin/env bash
# Starts one KRaft broker. As in the official image, KAFKA_SOME_KEY=v in the environment becomes some.key=v in
# server.properties, so the same environment starts either image.
set -euo pipefail
data=/var/lib/kafka/data
conf=/opt/kafka/server.properties

declare -A set_to=(
	[process.roles]=broker,controller [node.id]=1
	[controller.quorum.bootstrap.servers]=127.0.0.1:9093
	[controller.listener.names]=CONTROLLER
	[listeners]=PLAINTEXT://0.0.0.0:9092,BROKER://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093
	[advertised.listeners]=PLAINTEXT://127.0.0.1:9092,BROKER://127.0.0.1:9094
	[inter.broker.listener.name]=BROKER
	[listener.security.protocol.map]=PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
	[offsets.topic.replication.factor]=1 [transaction.state.log.replication.factor]=1 [transaction.state.log.min.isr]=1
	[share.coordinator.state.topic.replication.factor]=1 [share.coordinator.state.topic.min.isr]=1
)
while IFS='=' read -r name value; do
	case $name in
	KAFKA_HEAP_OPTS | KAFKA_OPTS | KAFKA_LOG4J*) ;;
	# The official image is given voters; this broker is the only one and formats itself as such.
	KAFKA_CONTROLLER_QUORUM_VOTERS) ;;
	KAFKA_*)
		key=${name#KAFKA_}
		key=${key,,}
		set_to[${key//_/.}]=$value
		;;
	esac
done < <(env)
set_to[log.dirs]=$data
for key in "${!set_to[@]}"; do printf '%s=%s\n' "$key" "${set_to[$key]}"; done | sort >"$conf"

if [ ! -e "$data/meta.properties" ]; then
	java -cp '/opt/kafka/lib/*' kafka.tools.StorageTool format --standalone -t "${CLUSTER_ID:-MkU3OEVBNTcwNTJENDM2Qk}" -c "$conf"
fi
# shellcheck disable=SC2086 # several options
exec java ${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m} -XX:+UseSerialGC ${KAFKA_OPTS:-} -cp '/opt/kafka/lib/*' kafka.Kafka "$conf"
