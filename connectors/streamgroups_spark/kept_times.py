"""How the time of which group's stream is made, in the user's own process; and there, what tasks have seen of it.

Told by ``event_time`` before a query is started, and by tasks (``seen_times``) while it runs; the query's source asks for both (``rendezvous``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from streamgroups.event_time.settings import TimeSettings
from streamgroups_spark.registering import SEEN, SESSION
from streamgroups_spark.rendezvous import Answering
from streamgroups_spark.time_facts import SeenQuestion, StreamTime, TimeWanted

_lock = threading.Lock()
_streams: dict[str, StreamTime] = {}
_answering: Answering | None = None


def keep(stream: StreamTime) -> None:
    """From now on the time of this group's stream is made so, in queries that are yet to start."""
    global _answering
    with _lock:
        _streams[stream.group_id] = stream
        if _answering is None:
            _answering = Answering(SESSION, _answer)


def streams() -> Mapping[str, TimeSettings]:
    """How the time of each stream is made, by its group."""
    with _lock:
        return {group_id: stream.settings for group_id, stream in _streams.items()}


def _answer(question: Any) -> Any:
    if isinstance(question, TimeWanted):
        with _lock:
            return _streams.get(question.group_id)
    if isinstance(question, SeenQuestion):
        return SEEN.take(question.told_by, question.ranges)
    return None
