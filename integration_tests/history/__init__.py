"""Histories of campaigns, and a checker that decides the invariants of this library by a history alone.

A history is a file of JSON lines. Each line is one event (:mod:`~integration_tests.history.events`): what was produced, read,
committed, written and reset, by which process, and when. The checker is a pure function of these events
(:mod:`~integration_tests.history.checker`). It shares no code with the verdicts of the campaigns, and names each anomaly in the
terms of Jepsen: ``python -m integration_tests.history check FILE``.

==============================  ==================================================================================
module                          content
==============================  ==================================================================================
``events``, ``lines``,          the events, their lines of JSON, and files to which several processes append
``files``
``view``                        the events of a history by partition
``outputs``, ``positions``,     the checks of the outputs, of positions and commits, and of states and watermarks
``states``
``checker``, ``anomalies``      all checks, and their result
``members``, ``observer``,      where events come from: the product's own history, an observer of offsets and
``outputs_read``, ``recorder``  outputs, the independent reader of the outputs, and the processes of the queries
==============================  ==================================================================================
"""
