"""Group cursors on Kafka."""
