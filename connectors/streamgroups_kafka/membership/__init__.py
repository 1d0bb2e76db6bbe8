"""A member of a consumer group."""
