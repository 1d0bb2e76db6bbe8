#!/bin/sh
# Starts a Kafka broker from environment variables, as the apache/kafka image does.
#
# The entry point of streamgroups/kafka-local. KAFKA_* variables become server properties: KAFKA_NODE_ID is node.id, "__"
# is "_" and "___" is "-". CLUSTER_ID formats an empty log directory. The Kafka class kafka.docker.KafkaDockerWrapper
# does both, as in the apache/kafka image. With arguments, the script runs them as a command instead.
set -eu

kafka=/opt/kafka
defaults=/etc/kafka/docker
config=$kafka/config

if [ "$#" -gt 0 ]; then
    exec "$@"
fi

CLUSTER_ID=${CLUSTER_ID:-ATdGup8-Ul6ISkLqRUL6EA}
export CLUSTER_ID

# The wrapper rejects a directory with the data of a cluster, as in a container that is restarted.
if ! said=$("$kafka/bin/kafka-run-class.sh" kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir "$defaults" --mounted-configs-dir /mnt/shared/config --final-configs-dir "$config" 2>&1); then
    case $said in
        *"already formatted"*) ;;
        *) printf '%s\n' "$said" >&2; exit 1 ;;
    esac
fi

KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m}
KAFKA_LOG4J_OPTS=${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=$config/log4j2.yaml}
export KAFKA_HEAP_OPTS KAFKA_LOG4J_OPTS
exec "$kafka/bin/kafka-run-class.sh" kafka.Kafka "$config/server.properties"
