"""Probes of Kafka clients and clusters for ``streamgroups doctor``."""
