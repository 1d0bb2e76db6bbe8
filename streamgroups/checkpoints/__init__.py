"""The offsets in the checkpoint of a query, and the decisions after a restart."""
