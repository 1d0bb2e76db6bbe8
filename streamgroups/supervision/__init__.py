"""Supervision: when a failed query is restarted, and the session of the thread that starts it.

Users import the names below as ``sg.supervision``. Source: SEMANTICS P5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.supervision.failure_causes import Failure as Failure
    from streamgroups.supervision.policy import RestartPolicy as RestartPolicy
    from streamgroups_spark.internals.active_session import session_active as session_active
    from streamgroups_spark.ops.supervise import SupervisedRun as SupervisedRun
    from streamgroups_spark.ops.supervise import retry_batches as retry_batches

_PLACES = places(
    {
        "streamgroups_spark.ops.supervise": "SupervisedRun retry_batches",
        "streamgroups.supervision.failure_causes": "Failure",
        "streamgroups.supervision.policy": "RestartPolicy",
        "streamgroups_spark.internals.active_session": "session_active",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
