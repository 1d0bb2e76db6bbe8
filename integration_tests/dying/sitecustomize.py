"""Injects the faults of a campaign at named points of a query. Only ``integration_tests.campaign`` puts it on the path
of its queries.

Python runs this file in every process at its start. A file in the directory ``STREAMGROUPS_DEATHS`` arms the point of
its name, and lists the members to stop. The first process that reaches the point renames the file and waits until the
campaign has injected the fault, which can kill it. The tested code has no dependency on this file.

The commits and states of the query are recorded in the history of the campaign (``history/recorder.py``).

``STREAMGROUPS_SABOTAGE`` disables a safeguard of the tested code, to verify that a campaign detects it (see
``campaign.turns.SABOTAGES`` and ``campaign.processor_turns.SABOTAGES``).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

_DIRECTORY = os.environ.get("STREAMGROUPS_DEATHS", "")
_MEMBER = os.environ.get("STREAMGROUPS_MEMBER", "")


def passing(point: str) -> None:
    """Called when a process reaches a point; waits there for the campaign if the point is armed."""
    armed = os.path.join(_DIRECTORY, point)
    reached, lost = (os.path.join(_DIRECTORY, f"{what}.{_MEMBER}.{os.getpid()}") for what in ("reached", "lost"))
    try:
        with open(armed) as file:
            if _MEMBER not in file.read().split():
                return
        os.rename(armed, reached)
    except OSError:
        return
    while os.path.exists(reached):
        time.sleep(0.005)
    if os.path.exists(lost):
        os.unlink(lost)
        from streamgroups.errors import SinkUnreachable

        # The text of the error has a secret, which no log may contain.
        planted = os.environ.get("STREAMGROUPS_PLANTED", "")
        raise SinkUnreachable(f"The campaign has lost the response. {planted}", remedy="Send the request again.")


def _around(before: str | None, after: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                passing(before)
            result = function(*args, **kwargs)
            if after is not None:
                passing(after)
            return result

        return wrapped

    return wrap


def _in_the_middle(point: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in function(*args, **kwargs):
                yield item
                passing(point)

        return wrapped

    return wrap


def _if_due(point: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The point is before a commit of the member that contains offsets."""

    def wrap(commit_due: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, consumer: Any) -> Any:
            if self._state.due():
                passing(point)
            return commit_due(self, consumer)

        return wrapped

    return wrap


def _at_requests(call: Callable[..., Any]) -> Callable[..., Any]:
    """Points before and after each request of a transaction, such as ``before-add-partitions``. Those of a commit enclose its method."""

    def called(self: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
        name = step.name.lower().replace("_", "-")
        if name == "commit":
            return call(self, step, *args, **kwargs)
        passing(f"before-{name}")
        result = call(self, step, *args, **kwargs)
        passing(f"after-{name}")
        return result

    return called


def _with(**given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Passes other arguments."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(*args, **{**kwargs, **given})

    return wrap


def _real_time(_: Callable[..., Any]) -> Callable[..., Any]:
    """The clock of the history is right, also if the campaign has moved the one of this process."""
    from integration_tests.history.real_time import real_ms

    return real_ms


#: A frozen member holds locks of PostgreSQL for this time, which is a minute by default.
_LOCK_MS = 10_000
#: The wrapped functions by module: attribute and wrapper.
_WRAPPED: dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]] = {
    "streamgroups.query.micro_batches": [("MicroBatches.latest_offset", _around(None, "before-offset-log"))],
    "streamgroups_operators.store": [("StateStore.write", _around("before-state-file", "after-state-file"))],
    "streamgroups_spark.source.task_reader": [("read_ranges", _in_the_middle("mid-read"))],
    "streamgroups_kafka.transactions.transaction_requests": [("TransactionSession._call", _at_requests)],
    "streamgroups_kafka.transactions.writer": [("TransactionWriter.write", _around(None, "inside-transaction"))],
    "streamgroups_kafka.transactions.coordinator": [
        ("Transactions.begin", _around(None, "transaction-begun")),
        ("Transactions.commit_offsets", _around("before-offsets", None)),
        ("Transactions.commit", _around("before-commit", "after-commit")),
    ],
    "streamgroups_spark.sinks.ledger_writer": [
        ("commit_batch", _around("before-commit", "after-commit")),
        ("LedgerStreamWriter.write", _around(None, "inside-transaction")),
        ("LedgerStreamWriter.__getstate__", _around(None, "transaction-begun")),
    ],
    "streamgroups.ledgers.batch_commit": [
        ("judge", _around(None, "commit-read")),
        ("new_epochs", _around(None, "take-over-read")),
    ],
    "streamgroups.query.ledger_positions": [
        ("take_over_partitions", _around("before-take-over", "after-take-over")),
        ("is_current", _around(None, "ledger-move-read")),
        ("LedgerPositions._move", _around("before-ledger-move", "after-ledger-move")),
    ],
    "streamgroups.query.reset_participation": [
        ("ResettableQuery.move", _around("before-reset-commit", "after-reset-commit")),
    ],
    "streamgroups.coordination.reset_participant": [
        ("ResetParticipant.write_entries", _around("before-entry", "after-entry")),
    ],
    "streamgroups_spark.sinks.letters.before_output": [
        ("write_first", _around("before-letters", "after-letters")),
        ("finish", _around("before-letters-end", "after-letters-end")),
    ],
    "streamgroups_kafka.membership.consumer_thread": [
        ("ConsumerOwner._on_revoke", _around("before-revoke", "after-revoke")),
        ("ConsumerOwner._wait_for_batch", _around(None, "before-release")),
        ("ConsumerOwner._commit_due", _if_due("before-group-commit")),
    ],
    "streamgroups_kafka.membership.member_state": [
        ("MemberState.committed", _around("after-group-commit", None)),
    ],
    "streamgroups_kafka.membership.history_file": [("now_ms", _real_time)],
    "streamgroups_sinks.postgres.ledger": [("PostgresLedger.__init__", _with(lock_ms=_LOCK_MS, idle_ms=_LOCK_MS))],
}


def _all_is_new(judge: Callable[..., Any]) -> Callable[..., Any]:
    """Accepts every batch, independently of the ledger."""

    def commit_all(ranges: Any, *_: Any) -> Any:
        from streamgroups.ledgers.compare_and_swap import NothingRead

        # The result for a ledger with positions at the start of each batch.
        return judge(ranges, {r.topic_partition: r.next_offset for r in ranges}) if ranges else NothingRead()

    return commit_all


def _only_done_is_done(judge: Callable[..., Any]) -> Callable[..., Any]:
    """Detects a batch that is already written, but not a batch of a fenced member."""

    def not_fenced(ranges: Any, *facts: Any) -> Any:
        from streamgroups.ledgers.compare_and_swap import Fenced

        # The fourth fact is the ownership epochs, which fence too.
        verdict = judge(ranges, *facts[:3])
        return _all_is_new(judge)(ranges) if isinstance(verdict, Fenced) else verdict

    return not_fenced


def _no_request_is_sent(_: Callable[..., Any]) -> Callable[..., Any]:
    """Reading resumes at the position of the group, independently of the ledger."""
    return lambda self, owned, _is_owner: dict(owned)


def _any_member(commit_offsets: Callable[..., Any]) -> Callable[..., Any]:
    """The commit of offsets contains no generation and no member id."""
    return lambda self, transaction, offsets, group_metadata: commit_offsets(
        self, transaction, offsets, replace(group_metadata, generation=None, member_id="")
    )


def _any_epoch(_: Callable[..., Any]) -> Callable[..., Any]:
    """A ledger accepts the resets of earlier owners."""
    return lambda topic_partition, epoch, positions: True


def _without_output(commit_batch: Callable[..., Any]) -> Callable[..., Any]:
    """About every third batch advances the ledger without its output: a full batch has 2,000 records."""

    def committed(ledger: Any, reads: Any, output: Any, **more: Any) -> Any:
        ends = [r.end_offset for ranges in reads.values() for r in ranges]
        return commit_batch(ledger, reads, None if sum(ends) // 500 % 3 == 2 else output, **more)

    return committed


def _by_batch_id(commit: Callable[..., Any]) -> Callable[..., Any]:
    """Writes a batch if this member has not written a batch with its number or a later one."""

    def commit_once(self: Any, messages: Any, batch_id: int) -> None:
        known = os.path.join(_DIRECTORY, f"{_MEMBER}.last")
        if os.path.exists(known):
            with open(known) as file:
                if batch_id <= int(file.read()):
                    self.abort(messages, batch_id)
                    return
        commit(self, messages, batch_id)
        with open(known, "w") as file:
            file.write(str(batch_id))

    return commit_once


def _earlier_state(find: Callable[..., Any]) -> Callable[..., Any]:
    """A batch continues with the state of an earlier offset."""

    def found(self: Any, position: Any) -> Any:
        from streamgroups.state.state_lookup import Stored

        choice, tp = find(self, position), position.topic_partition
        if not isinstance(choice, Stored):
            return choice
        stored = [self._open(file, tp)[0] for file in self._files.list() if file < choice.file]
        earlier = [Stored(it.file, state) for it in stored if (state := it.state_of(tp)) is not None]
        earlier = [it for it in earlier if it.state.next_offset < choice.state.next_offset]
        return max(earlier, key=lambda it: it.file, default=choice)

    return found


def _without_a_segment(write: Callable[..., Any]) -> Callable[..., Any]:
    """A new state does not name the oldest segment of its windows."""

    def written(self: Any, file: Any, states: Any) -> Any:
        cut = [replace(it, parts={name: part[1:] or part for name, part in it.parts.items()}) for it in states]
        return write(self, file, cut)

    return written


def _file_of_another_attempt(states_after: Callable[..., Any]) -> Callable[..., Any]:
    """A commit names the file of a task of an earlier batch, as if its report had come late."""
    known: dict[Any, list[Any]] = {}

    def states(batch: Any, reports: Any, group_id: str) -> Any:
        named = states_after(batch, reports, group_id)
        for tp, state in named.items():
            files = known.setdefault(tp, [])
            files += [state.file] if state.file not in files else []
        return {tp: replace(state, file=known[tp][-2:][0]) for tp, state in named.items()}

    return states


def _early_watermark(advancing: Callable[..., Any]) -> Callable[..., Any]:
    """The watermark of a partition is a minute ahead of its records."""
    return lambda self, records, times: advancing(self, records, times) + 60_000


def _without_a_file(copied: Callable[..., Any]) -> Callable[..., Any]:
    """A savepoint does not have one of its files: if possible, one that only contains segments of its states."""

    def incomplete(name: Any, files: Any, origins: Any, *more: Any) -> Any:
        from streamgroups.savepoints.cut import partitions_by_file

        record = copied(name, files, origins, *more)
        without_states = [it for it in record.files if it.name not in partitions_by_file(origins)]
        left_out = (without_states or list(record.files))[:1]
        return replace(record, files=tuple(it for it in record.files if it not in left_out))

    return incomplete


def _with_earlier_offsets(record: Callable[..., Any]) -> Callable[..., Any]:
    """A savepoint has states that are ahead of its offsets."""

    def earlier(self: Any, *args: Any) -> Any:
        made = record(self, *args)
        positions = {tp: replace(it, next_offset=max(0, it.next_offset - 50)) for tp, it in made.positions.items()}
        return replace(made, positions=positions)

    return earlier


def _no_stop(decide: Callable[..., Any]) -> Callable[..., Any]:
    """A worker stops no replica, independently of its lease and its placements."""
    return lambda *args, **kwargs: replace(decide(*args, **{**kwargs, "must_stop": None}), stop={})


def _always(_: Callable[..., Any]) -> Callable[..., Any]:
    """A lease is always valid."""
    return lambda self: True


def _never_removed(_: Callable[..., Any]) -> Callable[..., Any]:
    """A worker does not notice that the manager has removed its lease."""
    return lambda self, entries: None


def _of_the_process(transactional_id: Callable[..., Any]) -> Callable[..., Any]:
    """The transactional id of a processor is that of its process, so a new run does not fence an earlier one."""
    return lambda *args: f"{transactional_id(*args)}-{os.getpid()}"


def _of_controls(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A replacement of ``campaign.sabotages``."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        from integration_tests.campaign import sabotages

        wrapped: Callable[..., Any] = getattr(sabotages, name)(function)
        return wrapped

    return wrap


_NO_PLACEMENTS: dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]] = {
    "streamgroups_spark.workers.worker_process": [
        ("decide", _no_stop),
        ("WorkerProcess._is_lease_valid", _always),
        ("WorkerProcess._follow", _never_removed),
    ],
}
_SABOTAGES: dict[str, dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]]] = {
    "ledger": {
        "streamgroups.ledgers.batch_commit": [("judge", _all_is_new)],
        "streamgroups.query.ledger_positions": [("LedgerPositions.take_over", _no_request_is_sent)],
    },
    "fence": {
        "streamgroups.ledgers.batch_commit": [("judge", _only_done_is_done)],
        "streamgroups_kafka.transactions.coordinator": [("Transactions.commit_offsets", _any_member)],
    },
    "batch-id": {
        "streamgroups.ledgers.batch_commit": [("judge", _all_is_new)],
        "streamgroups.query.ledger_positions": [("LedgerPositions.take_over", _no_request_is_sent)],
        "streamgroups_spark.sinks.ledger_writer": [("LedgerStreamWriter.commit", _by_batch_id)],
        "streamgroups_spark.sinks.kafka": [("KafkaStreamWriter.commit", _by_batch_id)],
    },
    "placement": _NO_PLACEMENTS,
    "fences": {
        **_NO_PLACEMENTS,
        "streamgroups.ledgers.batch_commit": [("judge", _only_done_is_done)],
        "streamgroups_kafka.transactions.coordinator": [("Transactions.commit_offsets", _any_member)],
        "streamgroups.processors.processor": [("Processor.transactional_id", _of_the_process)],
    },
    "output": {"streamgroups_spark.sinks.ledger_writer": [("commit_batch", _without_output)]},
    "watermark": {"streamgroups_operators.windows.window_time": [("WindowTime._advancing", _early_watermark)]},
    "epoch": {"streamgroups.query.ledger_positions": [("is_current", _any_epoch)]},
    "state-offset": {"streamgroups_operators.store": [("StoredStates.find", _earlier_state)]},
    "state-segment": {"streamgroups_operators.store": [("StateStore.write", _without_a_segment)]},
    "state-file": {"streamgroups.query.operator_states": [("states_after", _file_of_another_attempt)]},
    "savepoint-file": {"streamgroups_operators.savepoints.creating": [("copied", _without_a_file)]},
    "savepoint-offset": {
        "streamgroups_operators.savepoints.creating": [("SavepointCreator._record", _with_earlier_offsets)]
    },
    "order": {
        "streamgroups_spark.sinks.kafka": [("KafkaStreamWriter._write", _of_controls("reversed_rows"))],
    },
    "range": {
        "streamgroups.query.available_offsets": [("AvailableOffsets.of", _of_controls("without_a_range"))],
    },
    "partition": {
        "streamgroups.query.available_offsets": [("AvailableOffsets.of", _of_controls("without_a_partition"))],
    },
    "abort": {"streamgroups_kafka.transactions.coordinator": [("_abort_failed", _of_controls("committed_instead"))]},
    "checksum": {
        "streamgroups_operators.store": [("pack", _of_controls("with_a_changed_segment"))],
        "streamgroups_operators.file_format": [("_check_body", _of_controls("unchecked"))],
    },
    "idempotence": {
        "streamgroups_kafka.transactions.writer": [
            ("TransactionWriter._new_producer", _of_controls("without_a_producer_id")),
            ("TransactionWriter._round", _of_controls("with_a_lost_response")),
        ],
        "streamgroups_kafka.transactions.task_output": [("_Output._advance", _of_controls("without_sequences"))],
    },
    "cursor-commit": {
        "streamgroups_kafka.cursors.instance_session": [("InstanceSession._get", _of_controls("committed_early"))],
    },
    "lease": {
        "streamgroups_kafka.membership.batch_watch": [("BatchWatch._decide", _of_controls("never_decided"))],
    },
    "redaction": {"streamgroups_spark.ops.exception_causes": [("redacted", _of_controls("not_redacted"))]},
}


def _recorded(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Records the calls of a function in the history, with a wrapper of ``history/recorder.py``."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        from integration_tests.history import recorder

        wrapped: Callable[..., Any] = getattr(recorder, name)(function)
        return wrapped

    return wrap


#: The recorded functions by module. A point is outside of them, so a process that sleeps there has not begun to commit.
_RECORDED: dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]] = {
    "streamgroups_kafka.transactions.coordinator": [
        ("Transactions.commit_offsets", _recorded("transaction_offsets")),
        ("Transactions.commit", _recorded("transaction_end")),
    ],
    "streamgroups_spark.sinks.ledger_writer": [("commit_batch", _recorded("ledger_commit"))],
    "streamgroups_kafka.membership.member_state": [("MemberState.assign", _recorded("assignment"))],
    "streamgroups_operators.store": [
        ("StoredStates.find", _recorded("state_found")),
        # The tasks of a join load the states that its plan names.
        ("StoredStates.find_planned", _recorded("state_found")),
        ("StateStore.write", _recorded("states_written")),
    ],
}
if os.environ.get("STREAMGROUPS_HISTORY"):
    for _module, _recorders in _RECORDED.items():
        _WRAPPED[_module] = _recorders + _WRAPPED.get(_module, [])
for _module, _instead in _SABOTAGES.get(os.environ.get("STREAMGROUPS_SABOTAGE", ""), {}).items():
    # The wrappers of points and of the history enclose a disabled safeguard, so the safeguard is first in the list.
    _WRAPPED[_module] = _instead + _WRAPPED.get(_module, [])


class _Wrapping(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module when the module is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _WRAPPED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for attribute, wrap in _WRAPPED[name]:
                owner: Any = module
                *outer, last = attribute.split(".")
                for part in outer:
                    owner = getattr(owner, part)
                setattr(owner, last, wrap(getattr(owner, last)))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _DIRECTORY:
    sys.meta_path.insert(0, _Wrapping())
