"""What one streaming query does in its group, batch by batch."""
