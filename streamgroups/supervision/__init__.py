"""When a failed query is restarted."""
