"""Savepoints: the committed offsets of a group with the states that they name, kept outside of retention.

A committed offset names its state, so the committed offsets of one request are a cut: for each partition a position, the state
of exactly this position, and its event time. A savepoint is a copy of such a cut. It needs no barrier, and no member takes
part. Its commit record is written last, so an interrupted savepoint has none and is never restored.

:mod:`~streamgroups.savepoints.commit_record` is the file ``savepoint.json``, with the parts of
:mod:`~streamgroups.savepoints.output_record` and :mod:`~streamgroups.savepoints.checkpoint_record`.
:mod:`~streamgroups.savepoints.cut` decides which states belong to a savepoint, and
:mod:`~streamgroups.savepoints.restoring` where a restored group continues. ``streamgroups_operators.savepoints`` copies the
files, and ``streamgroups_admin.savepoints`` changes the groups. Source: SEMANTICS C1 to C3, S10, S11; Flink's savepoints.

Users import the names below as ``sg.savepoints``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.savepoints.checkpoint_record import CheckpointRecord as CheckpointRecord
    from streamgroups.savepoints.commit_record import CommitRecord as CommitRecord
    from streamgroups.savepoints.commit_record import OperatorRecord as OperatorRecord
    from streamgroups.savepoints.output_record import OutputRecord as OutputRecord
    from streamgroups_admin.savepoints.api import Restored as Restored
    from streamgroups_admin.savepoints.api import Savepoints as Savepoints
    from streamgroups_admin.savepoints.store import ListedSavepoint as ListedSavepoint
    from streamgroups_admin.savepoints.store import SavepointProblem as SavepointProblem

_PLACES = places(
    {
        "streamgroups.savepoints.checkpoint_record": "CheckpointRecord",
        "streamgroups.savepoints.commit_record": "CommitRecord OperatorRecord",
        "streamgroups.savepoints.output_record": "OutputRecord",
        "streamgroups_admin.savepoints.api": "Restored Savepoints",
        "streamgroups_admin.savepoints.store": "ListedSavepoint SavepointProblem",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
