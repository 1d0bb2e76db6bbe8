"""Kafka transactions that span a micro-batch."""
