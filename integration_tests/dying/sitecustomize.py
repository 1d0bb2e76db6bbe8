"""Lets a campaign strike a query at a named point; put on the path of the queries of ``integration_tests.campaign``, and nowhere else.

Python runs this file in every process that it starts. A point is armed by a file of its name in the directory that ``STREAMGROUPS_DEATHS``
names, in which it says of which members. Whoever comes by first says so, by giving the file another name, and waits until the campaign has done what it
wants to do: it may not live to see it. The code that is tested knows nothing of it.

``STREAMGROUPS_SABOTAGE`` takes out of that code what keeps it right, to see that a campaign notices (see ``campaign.SABOTAGES``).
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
    """A point is passed: if it is armed, what comes now is the campaign's to say."""
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

        raise SinkUnreachable("The campaign has lost the answer.", remedy="Ask again.")


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


#: What is wrapped, by module: attributes, and what is done to them.
_WRAPPED: dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]] = {
    "streamgroups.query.micro_batches": [("MicroBatches.latest_offset", _around(None, "before-offset-log"))],
    "streamgroups_spark.source.data_source": [("read_ranges", _in_the_middle("mid-read"))],
    "streamgroups_kafka.transactions.writer": [("TransactionWriter.write", _around(None, "inside-transaction"))],
    "streamgroups_kafka.transactions.coordinator": [
        ("Transactions.begin", _around(None, "transaction-begun")),
        ("Transactions.commit_offsets", _around("before-offsets", None)),
        ("Transactions.commit", _around("before-commit", "after-commit")),
    ],
    "streamgroups_spark.sinks.ledger": [
        ("commit_batch", _around("before-commit", "after-commit")),
        ("LedgerStreamWriter.write", _around(None, "inside-transaction")),
        ("LedgerStreamWriter.__getstate__", _around(None, "transaction-begun")),
    ],
}


def _all_is_new(judge: Callable[..., Any]) -> Callable[..., Any]:
    """Every batch may be written, whatever the ledger says."""

    def commit_all(ranges: Any, positions: Any, foreign: Any) -> Any:
        from streamgroups.ledgers.ledger import NothingRead

        # The verdict of a ledger whose positions are at the start of each batch.
        return judge(ranges, {r.topic_partition: r.next_offset for r in ranges}) if ranges else NothingRead()

    return commit_all


def _only_done_is_done(judge: Callable[..., Any]) -> Callable[..., Any]:
    """A batch is known that is written already; one that others have overtaken is not."""

    def not_fenced(ranges: Any, positions: Any, foreign: Any) -> Any:
        from streamgroups.ledgers.ledger import Fenced

        verdict = judge(ranges, positions, foreign)
        return _all_is_new(judge)(ranges, positions, foreign) if isinstance(verdict, Fenced) else verdict

    return not_fenced


def _nobody_is_asked(_: Callable[..., Any]) -> Callable[..., Any]:
    """Reading goes on where the group stands, whatever the ledger says."""
    return lambda *_: dict


def _anybody(commit_offsets: Callable[..., Any]) -> Callable[..., Any]:
    """The broker is not told of which generation a member is."""
    return lambda self, transaction, offsets, group_metadata: commit_offsets(
        self, transaction, offsets, replace(group_metadata, generation=None, member_id="")
    )


def _by_batch_id(commit: Callable[..., Any]) -> Callable[..., Any]:
    """A batch is written if its number is one that this member has not written."""

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


_SABOTAGES: dict[str, dict[str, list[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]]] = {
    "ledger": {
        "streamgroups.ledgers.commit": [("judge", _all_is_new)],
        "streamgroups_spark.source.running_query": [("TakingOver", _nobody_is_asked)],
    },
    "fence": {
        "streamgroups.ledgers.commit": [("judge", _only_done_is_done)],
        "streamgroups_kafka.transactions.coordinator": [("Transactions.commit_offsets", _anybody)],
    },
    "batch-id": {
        "streamgroups.ledgers.commit": [("judge", _all_is_new)],
        "streamgroups_spark.source.running_query": [("TakingOver", _nobody_is_asked)],
        "streamgroups_spark.sinks.ledger": [("LedgerStreamWriter.commit", _by_batch_id)],
        "streamgroups_spark.sinks.kafka": [("KafkaStreamWriter.commit", _by_batch_id)],
    },
}
for _module, _instead in _SABOTAGES.get(os.environ.get("STREAMGROUPS_SABOTAGE", ""), {}).items():
    # What is sabotaged is what is inside of the point: first.
    _WRAPPED[_module] = _instead + _WRAPPED.get(_module, [])


class _Wrapping(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module as soon as it is loaded."""

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
