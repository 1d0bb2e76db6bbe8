"""Group cursors: leases, tokens, admission and positions."""
