"""Group cursors: what a cursor says, how long an instance may be silent, what a request commits and where it reads on."""
