"""Queues of dead letters in Kafka (SEMANTICS P5)."""
