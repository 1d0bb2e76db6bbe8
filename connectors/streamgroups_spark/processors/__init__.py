"""Builds and runs declared processors.

``yaml_text`` parses a file, ``vocabulary`` generates the JSON Schema, ``steps`` applies the steps,
``building`` creates the DataFrame and the writer, and ``running`` runs them. :mod:`streamgroups.processors` has the rules. Source: SEMANTICS P1.
"""
