"""Snapshots of groups and queries over time, and the metrics made of them."""
