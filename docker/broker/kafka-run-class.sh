#!/bin/sh
# Runs one class of Kafka: kafka-run-class.sh <class> [argument...]
#
# Called by the entry point and by every kafka-<tool>.sh of streamgroups/kafka-local; uses the variables of Kafka's own
# script of this name.
set -eu

kafka=/opt/kafka
heap=${KAFKA_HEAP_OPTS:--Xmx256m}
performance=${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC}
logging=${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=/etc/kafka/docker/tools-log4j2.yaml}

# Jar by jar, in the shell's order: the class archive is valid for one class path only, and "libs/*" has no order.
class_path=
for jar in "$kafka"/libs/*.jar; do
    class_path=$class_path${class_path:+:}$jar
done
if [ -f "$kafka/classes.jsa" ]; then
    performance="$performance -XX:SharedArchiveFile=$kafka/classes.jsa"
fi

# Each variable contains several options, so the shell must split them.
# shellcheck disable=SC2086
exec java $heap $performance ${KAFKA_OPTS-} $logging -cp "$class_path" "$@"
