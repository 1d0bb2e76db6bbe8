"""The files of savepoints: copies of state files with a commit record.

Called by ``streamgroups savepoint``. A savepoint is a directory ``<location>/<id>``. The state files of an operator are in
``states/<operator>`` below it, with their names and bytes. The file ``savepoint.json`` is written last. At most one part of a
file, or one segment, is in memory. Source: SEMANTICS C1, C3.
"""
