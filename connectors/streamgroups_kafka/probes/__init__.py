"""What ``streamgroups doctor`` finds out about Kafka clients and clusters."""
