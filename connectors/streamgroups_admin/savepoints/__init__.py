"""Savepoints of a group: ``sg.savepoints``, and restores with their effects on groups, outputs and checkpoints."""
