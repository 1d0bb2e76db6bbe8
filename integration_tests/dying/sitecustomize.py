"""Lets a process of a query die at a named point; put on the path of the queries of ``integration_tests.campaign``, and nowhere else.

Python runs this file in every process that it starts. A point is armed by a file of its name in the directory that ``STREAMGROUPS_DEATHS``
names; whoever comes by first takes the file away and kills itself, or the whole query if the file says so. The code that is tested knows
nothing of it. ``STREAMGROUPS_SABOTAGE=ledger`` takes the ledger out of it, to see that a campaign notices.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

_DIRECTORY = os.environ.get("STREAMGROUPS_DEATHS", "")


def passing(point: str) -> None:
    """A point is passed: the end, if it is armed."""
    armed = os.path.join(_DIRECTORY, point)
    try:
        with open(armed) as file:
            victim = file.read().strip()
        os.unlink(armed)
    except OSError:
        return
    with open(os.path.join(_DIRECTORY, "deaths.log"), "a") as log:
        log.write(f"{point} {victim} {os.environ['STREAMGROUPS_MEMBER']}\n")
    if victim == "driver":
        os.killpg(int(os.environ["STREAMGROUPS_DRIVER"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


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
    "streamgroups_spark.micro_batches": [("MicroBatches.latest_offset", _around(None, "before-offset-log"))],
    "streamgroups_spark.source": [("read_ranges", _in_the_middle("mid-read"))],
    "streamgroups_kafka.transaction_writer": [("TransactionWriter.write", _around(None, "inside-transaction"))],
    "streamgroups_kafka.transactions": [
        ("Transactions.begin", _around(None, "transaction-begun")),
        ("Transactions.commit_offsets", _around("before-offsets", None)),
        ("Transactions.commit", _around("before-commit", "after-commit")),
    ],
    "streamgroups_spark.ledger_sink": [
        ("commit_batch", _around("before-commit", "after-commit")),
        ("LedgerStreamWriter.write", _around(None, "inside-transaction")),
        ("LedgerStreamWriter.__getstate__", _around(None, "transaction-begun")),
    ],
}


def _no_ledger(_: Callable[..., Any]) -> Callable[..., Any]:
    """Every batch may be written, whatever the ledger says."""

    def commit_all(ranges: Any, positions: Any) -> Any:
        from streamgroups.ledgers.ledger import Commit, NothingRead

        read = {r.topic_partition: r.end_offset for r in ranges if len(r)}
        return Commit(read) if read else NothingRead()

    return commit_all


def _nobody_is_asked(_: Callable[..., Any]) -> Callable[..., Any]:
    """Reading goes on where the group stands, whatever the ledger says."""
    return lambda *_: dict


if os.environ.get("STREAMGROUPS_SABOTAGE") == "ledger":
    _WRAPPED["streamgroups.committing"] = [("judge", _no_ledger)]
    _WRAPPED["streamgroups_spark.running_query"] = [("TakingOver", _nobody_is_asked)]


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
