"""Resets of committed offsets: plans, reset requests to members, undo files, and the commits."""
