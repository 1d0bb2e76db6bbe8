"""The iteration over the messages of one instance, from its first message until the instance leaves.

``group_cursors`` creates one for each call of ``messages``, and ends those that still run when it is closed. An iteration uses
the session of its instance without tokens, which expire while a long fetch is processed. Source: SEMANTICS G4, G6, G12, G13.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from dataclasses import replace

from streamgroups.cursors.cursor_tokens import GroupCursor
from streamgroups.cursors.pending_ranges import acknowledge
from streamgroups.errors import FencedMember
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock
from streamgroups_kafka.cursors.closing import Closed
from streamgroups_kafka.cursors.instance_session import InstanceSession

#: How long an iteration waits after an empty result before it reads again.
_IDLE_S = 0.1


class Iteration:
    """Iterates over the messages of an instance, and counts a message as processed when the next one is requested.

    Args:
        session: the instance.
        limit: the maximum number of messages in one fetch.
        idle_timeout_ms: the time without messages after which the iteration ends, in milliseconds; ``None`` for no end.
        clock: returns milliseconds since the epoch.
        closed: set when the ``GroupCursors`` are closed.
    """

    def __init__(
        self,
        session: InstanceSession,
        *,
        limit: int,
        idle_timeout_ms: int | None,
        clock: Clock,
        closed: Closed,
    ) -> None:
        self._session, self._limit, self._idle_timeout_ms = session, limit, idle_timeout_ms
        self._clock, self._closed = clock, closed
        # Written by the thread of the user. The thread that closes reads it.
        self._fetch: _Fetch = _Fetch(session.identity, session.identity)

    def messages(self) -> Iterator[Message]:
        """Returns the messages. At the end of the iteration the instance leaves."""
        messages = self._messages()
        # Without a first message, the deletion of a generator runs none of its code.
        weakref.finalize(messages, self.end).atexit = False
        return messages

    def _messages(self) -> Iterator[Message]:
        came_ms = self._clock()
        try:
            while not self._closed.is_set():
                before = self._fetch.after
                messages, after = self._session.get(before, self._limit)
                self._fetch = fetch = _Fetch(before, after)
                for message in messages:
                    # The close can be during the request.
                    if self._closed.is_set():
                        return
                    yield message
                    fetch.handled.append((message.topic_partition, message.offset))
                    if self._closed.is_set():
                        return
                    self._session.heartbeat()
                # All are processed, and so are the gaps after them (SEMANTICS G13).
                self._fetch = _Fetch(after, after)
                now_ms = self._clock()
                if messages:
                    came_ms = now_ms
                elif self._is_idle(now_ms - came_ms):
                    return
                else:
                    time.sleep(_IDLE_S)
        except FencedMember:
            # The close has ended the instance during a request.
            if not self._closed.is_set():
                raise
        finally:
            self.end()

    def end(self) -> None:
        """Commits the processed messages and leaves. If that fails, other instances read the messages again.

        Safe to call on any thread, and again. The garbage collector calls it for an abandoned iteration, at any place of any
        thread. There it does not wait: the instance leaves in the background.
        """
        identity = self._session.identity
        self._session.end(
            f"Instance '{identity.instance}' left group '{identity.group}': its iteration ended.",
            processed=self._fetch.processed,
        )
        self._session.wait_until_left()

    def _is_idle(self, silent_ms: int) -> bool:
        return self._idle_timeout_ms is not None and silent_ms >= self._idle_timeout_ms


class _Fetch:
    """A request for messages.

    Args:
        before: the cursor of the request.
        after: the cursor that it returned.
    """

    __slots__ = ("after", "before", "handled")

    def __init__(self, before: GroupCursor, after: GroupCursor) -> None:
        self.before, self.after = before, after
        #: Partition and offset of the processed messages.
        self.handled: list[tuple[TopicPartition, int]] = []

    @property
    def processed(self) -> GroupCursor:
        """The cursor that covers the processed messages."""
        return replace(self.after, pending=acknowledge(self.before.pending, self.after.pending, tuple(self.handled)))
