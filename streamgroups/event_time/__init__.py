"""Decisions about event time: how far it has come, who holds it back, and what that means for windows and late records."""
