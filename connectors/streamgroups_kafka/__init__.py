"""Kafka: the only package that imports a Kafka client. Members, readers, offsets, and their configuration."""
