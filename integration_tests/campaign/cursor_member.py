"""A member of a campaign of cursors: an instance that records the messages of each request. ``integration_tests.campaign`` starts it as
``python -m integration_tests.campaign.cursor_member '{...}'``.

It processes a message by its event ``Delivered``, which it writes before the next request. The next request commits it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

import streamgroups as sg
from integration_tests.history.events import Delivered
from integration_tests.history.real_time import real_ms
from integration_tests.history.recorder import record
from streamgroups.errors import CursorExpired, DataLoss, FencedMember, InvalidCursor, StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition

#: The maximum number of messages of a request.
LIMIT = 500
#: The time between two requests without messages, and after an error.
_PAUSE_S = 0.1
_SETTINGS = "kafka."
#: After these errors an instance needs a new cursor.
_ENDED = (CursorExpired, DataLoss, FencedMember, InvalidCursor)


def delivered_ranges(messages: Iterable[tuple[str, int, int]]) -> Iterator[OffsetRange]:
    """The offsets of messages in their order. A range has no gap.

    >>> [(it.next_offset, it.end_offset) for it in delivered_ranges([("t", 0, 4), ("t", 0, 5), ("t", 0, 8), ("t", 0, 8)])]
    [(4, 6), (8, 9), (8, 9)]
    """
    last: OffsetRange | None = None
    for topic, partition, offset in messages:
        tp = TopicPartition(topic, partition)
        if last is not None and last.topic_partition == tp and last.end_offset == offset:
            last = OffsetRange(tp, last.next_offset, offset + 1)
            continue
        if last is not None:
            yield last
        last = OffsetRange(tp, offset, offset + 1)
    if last is not None:
        yield last


def deliver(cursors: sg.cursors.GroupCursors, config: dict[str, Any], session: str, stopping: threading.Event) -> None:
    """Requests and records messages until it stops.

    Args:
        cursors: the connection.
        config: the topic, the group and the name of the instance.
        session: the name of this use of the instance.
        stopping: ends it.
    """
    passing: Callable[[str], None] = import_module("sitecustomize").passing
    topic, group = config["options"]["subscribe"], config["options"]["group.id"]
    cursor = cursors.create_group_cursor(topic, group, config["name"], sg.cursors.TRIM_HORIZON)
    request = 0
    while not stopping.is_set():
        passing("before-get")
        # A frozen instance returns from its request after the next owner has received the messages.
        requested_ms = real_ms()
        try:
            messages, cursor = cursors.get_messages(cursor, limit=LIMIT)
        except _ENDED:
            raise
        except StreamGroupsError as e:
            # The cursor stays valid.
            print(f"{session}: {e}", flush=True)  # noqa: T201
            stopping.wait(_PAUSE_S)
            continue
        # The request has committed the messages of the previous one, also if this process is killed at the point.
        record(Delivered, group, session, request, (), time_ms=requested_ms)
        passing("after-get")
        ranges = delivered_ranges((topic, m.partition, m.offset) for m in messages)
        record(Delivered, group, session, request, tuple(ranges), time_ms=requested_ms)
        request += 1
        passing("after-delivery")
        if not messages:
            stopping.wait(_PAUSE_S)


def main(config: dict[str, Any]) -> int:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    options = config["options"]
    settings = {k.removeprefix(_SETTINGS): v for k, v in options.items() if k.startswith(_SETTINGS)}
    bootstrap = settings.pop("bootstrap.servers")
    # The name of an instance is its client id.
    del settings["client.id"]
    n_sessions = 0
    while not stopping.is_set():
        n_sessions += 1
        try:
            with sg.cursors.GroupCursors(bootstrap, settings) as cursors:
                deliver(cursors, config, f"{config['name']}-{os.getpid()}-{n_sessions}", stopping)
        except StreamGroupsError as e:
            print(f"session {n_sessions}: {e}", flush=True)  # noqa: T201
            stopping.wait(_PAUSE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
