"""The configuration, errors and logs of Kafka clients."""
