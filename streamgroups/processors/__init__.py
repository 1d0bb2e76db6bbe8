"""Declared processors: one source connection, steps, and at most one sink connection, in a file or in Python.

A file is read in four steps. ``streamgroups_spark.processors.yaml_text`` parses it into a tree of values with their lines
(``values``). ``schema_checks`` compares the tree with the JSON Schema (``schema``), which is generated from the signatures of
the ``sg`` functions. ``reading`` creates the ``processor`` and applies the rules between its fields (``rules``).
``streamgroups_spark.processors`` builds and runs it. Source: SEMANTICS P1.
"""
