"""Supervision: when a failed query is restarted, and the session of the thread that starts it.

Users import the names below as ``sg.supervision``. Source: SEMANTICS P5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgroups._lazy import loaded, places

if TYPE_CHECKING:
    from streamgroups.supervision.policy import RestartPolicy as RestartPolicy
    from streamgroups_spark.internals.active_session import session_active as session_active
    from streamgroups_spark.ops.retry_batches import retry_batches as retry_batches
    from streamgroups_spark.ops.supervise import Outcome as Outcome

_PLACES = places(
    {
        "streamgroups_spark.ops.supervise": "Outcome",
        "streamgroups.supervision.policy": "RestartPolicy",
        "streamgroups_spark.internals.active_session": "session_active",
        "streamgroups_spark.ops.retry_batches": "retry_batches",
    }
)

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    return loaded(__name__, name, _PLACES)


def __dir__() -> list[str]:
    return __all__
