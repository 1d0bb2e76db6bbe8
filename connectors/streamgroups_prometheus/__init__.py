"""The Prometheus exporter of groups."""
