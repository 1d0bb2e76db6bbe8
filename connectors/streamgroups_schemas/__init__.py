"""Avro, Protobuf and JSON Schema: codecs of values in Arrow arrays, without Spark and without a Kafka client."""
