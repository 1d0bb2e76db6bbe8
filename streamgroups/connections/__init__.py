"""Connections: names for how to reach a system, with secrets by reference.

``config_file`` reads the file of connections, in each process that connects. A connection contains the references of its
secrets, so it can be pickled, logged and stored. ``references.resolved`` returns a secret where a client is created.
Used by the source and the sinks (option and argument ``connection``), by the schema registry, and by the command line.
Source: SEMANTICS P3.
"""
