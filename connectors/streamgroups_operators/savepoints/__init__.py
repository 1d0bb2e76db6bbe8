"""The files of savepoints: copies of state files with a commit record.

Called by ``streamgroups savepoint``. A savepoint is a directory ``<location>/<id>``. The state files of an operator are in
``states/<operator>`` below it, with their names and bytes. The file ``savepoint.json`` is written last. Some parts of files of constant
size are in memory, whatever the size of the states. Source: SEMANTICS C1, C3.
"""
