"""Savepoints: the committed offsets of a group with the states that they name, kept outside of retention.

A committed offset names its state, so the committed offsets of one request are a cut: for each partition a position, the state
of exactly this position, and its event time. A savepoint is a copy of such a cut. It needs no barrier, and no member takes
part. Its commit record is written last, so an interrupted savepoint has none and is never restored.

:mod:`~streamgroups.savepoints.commit_record` is the file ``savepoint.json``. :mod:`~streamgroups.savepoints.cut` decides
which states belong to a savepoint, and :mod:`~streamgroups.savepoints.restoring` where a restored group continues.
``streamgroups_operators.savepoints`` copies the files. Source: SEMANTICS C1 to C3, S10, S11; Flink's savepoints.
"""
