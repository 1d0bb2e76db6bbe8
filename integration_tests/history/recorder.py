"""Records the commits and states of a query, in its processes. ``dying/sitecustomize.py`` wraps functions of the tested code with it.

Each process appends to a file of its own, because a campaign kills it. A wrapper passes all arguments, results and errors on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from integration_tests.history.events import AssignmentBegun, Commit, Event, Offsets, StateLoaded, StateWritten
from integration_tests.history.files import HistoryWriter
from integration_tests.history.real_time import real_ms
from streamgroups.errors import FencedBatch, FencedMember, StreamGroupsError, TransactionFailed

#: The directory of the history, and the name of the member.
DIRECTORY, MEMBER = "STREAMGROUPS_HISTORY", "STREAMGROUPS_MEMBER"
#: The errors after which no output of a batch is visible.
_REJECTED = (FencedBatch, FencedMember, TransactionFailed)

_Function = Callable[..., Any]


@cache
def _writer(directory: str, pid: int) -> HistoryWriter:
    # A forked worker has another process id than its parent.
    return HistoryWriter(Path(directory) / f"{os.environ.get(MEMBER, '')}-{pid}.jsonl")


def record(event_class: type[Event], *content: Any, time_ms: int | None = None) -> None:
    """Appends an event of this process; nothing without :data:`DIRECTORY`.

    Args:
        event_class: its class.
        content: its other values.
        time_ms: when it was; ``None``: now.
    """
    directory = os.environ.get(DIRECTORY)
    if directory:
        now_ms = real_ms() if time_ms is None else time_ms
        _writer(directory, os.getpid())(event_class(now_ms, os.environ.get(MEMBER, ""), *content))


@contextmanager
def _commit(group: str, generation: int | None, offsets: Offsets) -> Iterator[Callable[[str], None]]:
    """Records the end of a commit: ``accepted``, or the phase that the block passes on."""
    phase = "accepted"

    def set_phase(other: str) -> None:
        nonlocal phase
        phase = other

    try:
        yield set_phase
    except StreamGroupsError as e:
        phase = "rejected" if isinstance(e, _REJECTED) else "unknown"
        raise
    except BaseException:
        phase = "unknown"
        raise
    finally:
        record(Commit, group, generation, offsets, phase)


#: The last commit of each producer: group, generation and offsets, by producer id and epoch.
_OPEN: dict[tuple[int, int], tuple[str, int | None, Offsets]] = {}


def transaction_offsets(commit_offsets: _Function) -> _Function:
    """Records that a transaction of Kafka receives the offsets of a group: its commit begins."""

    def recorded(self: Any, transaction: Any, offsets: Mapping[Any, Any], group_metadata: Any) -> Any:
        positions = {tp: it.next_offset for tp, it in offsets.items()}
        content = group_metadata.group_id, group_metadata.generation, positions
        if positions:
            _OPEN[transaction.producer.producer_id, transaction.producer.epoch] = content
            record(Commit, *content, "begun")
        return commit_offsets(self, transaction, offsets, group_metadata)

    return recorded


def transaction_end(commit: _Function) -> _Function:
    """Records the end of the commit of a transaction."""

    def recorded(self: Any, transaction: Any) -> Any:
        # The commit is repeated after an unknown result.
        content = _OPEN.get((transaction.producer.producer_id, transaction.producer.epoch))
        if content is None:
            return commit(self, transaction)
        with _commit(*content):
            return commit(self, transaction)

    return recorded


def ledger_commit(commit_batch: _Function) -> _Function:
    """Records a commit in a ledger. Its fence is the ownership epoch."""

    def recorded(ledger: Any, reads: Mapping[str, Sequence[Any]], output: Any, **more: Any) -> Any:
        [(group, ranges)] = reads.items()
        epochs = more.get("epochs", {}).get(group, {})
        content = group, next(iter(epochs.values()), None), {r.topic_partition: r.end_offset for r in ranges}
        if not ranges:
            return commit_batch(ledger, reads, output, **more)
        record(Commit, *content, "begun")
        with _commit(*content) as ends:
            verdict = commit_batch(ledger, reads, output, **more)
            if type(verdict).__name__ != "CommitGroups":
                ends("unchanged")
            return verdict

    return recorded


def assignment(assign: _Function) -> _Function:
    """Records the generation of an assignment, before the member records its partitions."""

    def recorded(self: Any, positions: Mapping[Any, Any]) -> Any:
        metadata = self.group_metadata
        if metadata is not None:
            record(AssignmentBegun, metadata.group_id, metadata.generation)
        return assign(self, positions)

    return recorded


def state_found(find: _Function) -> _Function:
    """Records the state with which a batch continues, and the one that its position names."""

    def recorded(self: Any, position: Any) -> Any:
        choice = find(self, position)
        state = getattr(choice, "state", None)
        if state is not None:
            kind = type(position.origin).__name__
            # A ledger stores a fingerprint of the state of exactly this position.
            named = position.next_offset if kind == "Fingerprinted" else getattr(position.origin, "next_offset", None)
            record(StateLoaded, position.topic_partition, position.next_offset, named, state.next_offset)
        return choice

    return recorded


def states_written(write: _Function) -> _Function:
    """Records the states of a task, with the watermarks by the records of their partitions."""

    def recorded(self: Any, file: Any, states: Sequence[Any]) -> Any:
        manifest = write(self, file, states)
        for it in (new.state for new in states):
            time_ms = None if it.time is None or it.time.is_idle else it.time.watermark_ms
            record(StateWritten, it.topic_partition, it.next_offset, time_ms)
        return manifest

    return recorded
