"""Kafka: the only package here that imports a Kafka client. Members, readers, offsets, and their configuration."""
