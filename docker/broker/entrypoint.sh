#!/bin/sh
# Starts a Kafka broker from environment variables, as the apache/kafka image does.
#
# Called as the entry point of streamgroups/kafka-local. KAFKA_* variables become server properties (KAFKA_NODE_ID is
# node.id; "__" stands for "_" and "___" for "-") and CLUSTER_ID formats the log directory unless that was done before:
# both by kafka.docker.KafkaDockerWrapper, the class of Kafka that the apache/kafka image calls too. With arguments, runs
# those instead.
set -eu

kafka=/opt/kafka
defaults=/etc/kafka/docker
config=$kafka/config

if [ "$#" -gt 0 ]; then
    exec "$@"
fi

CLUSTER_ID=${CLUSTER_ID:-ATdGup8-Ul6ISkLqRUL6EA}
export CLUSTER_ID

# The wrapper refuses a directory that holds a cluster's data already: a container that is started again.
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
