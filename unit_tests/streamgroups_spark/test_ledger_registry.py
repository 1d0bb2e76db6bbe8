"""X2, X4: the sink that keeps the ledger of a query, and for how long it is registered."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_spark.internals.private_spark import FOREACH_BATCH
from streamgroups_spark.sinks.ledger_registry import Ledgers

#: The format of a query, and of another one.
TABLE, OTHER = "streamgroups-deltasink-1f", "streamgroups-deltasink-2e"
FLIGHTS, FARES = DeltaSink(uri="/tables/flights"), DeltaSink(uri="/tables/fares")


class Writer:
    """What starts a query."""


class Queries:
    """The queries that run."""

    def __init__(self) -> None:
        self.active: set[str] = set()
        #: What happens in another thread, by the call of Spark that waits for it.
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.ledgers = Ledgers(self._active, self._resolved)

    def _active(self) -> frozenset[str]:
        active = frozenset(self.active)
        self.meanwhile.pop("active", lambda: None)()
        return active

    def _resolved(self, checkpoint: str) -> str:
        self.meanwhile.pop("resolved", lambda: None)()
        return f"file:{checkpoint}"

    def start(self, sink: object, *group_ids: str, checkpoint: str = "/c", sink_name: str = TABLE) -> Writer:
        writer = Writer()
        groups = group_ids or ("board",)
        self.ledgers.keep(sink, groups, checkpoint=checkpoint, writer=writer, sink_name=sink_name)
        self.active.add(f"file:{checkpoint}")
        return writer


@pytest.fixture
def queries() -> Queries:
    """See `Queries`."""
    return Queries()


def test_a_query_finds_its_own_sink(queries: Queries) -> None:
    queries.start(FLIGHTS, "board", "fares")
    assert [queries.ledgers.of(group, "file:/c", TABLE) for group in ("board", "fares", "other")] == [
        FLIGHTS,
        FLIGHTS,
        None,
    ]


def test_another_query_of_the_group_has_no_ledger(queries: Queries) -> None:
    writer = queries.start(FLIGHTS)
    assert queries.ledgers.of("board", "file:/plain", TABLE) is None
    assert writer is not None, "its query may be started again"


def test_where_the_checkpoint_is_not_known_the_group_counts(queries: Queries) -> None:
    assert queries.ledgers.of("board", None, TABLE) is None
    writers = [
        queries.start(FLIGHTS, checkpoint="/a"),
        queries.start(DeltaSink(uri="/tables/flights"), checkpoint="/b"),
    ]
    assert queries.ledgers.of("board", None, TABLE) == FLIGHTS
    queries.active.clear()
    writers.append(queries.start(FARES))
    with pytest.raises(InvalidOption, match="'board' has ledgers in several sinks"):
        queries.ledgers.of("board", None, TABLE)


def test_a_second_sink_is_rejected_while_the_first_is_written_to(queries: Queries) -> None:
    queries.start(FLIGHTS, "board", "fares")
    with pytest.raises(
        InvalidOption, match=r"Group 'fares' already has a ledger in DeltaSink.*/tables/flights.* 'file:/c'"
    ):
        queries.start(FARES, "fares", checkpoint="/other")
    queries.start(FARES, "of-its-own", checkpoint="/other")
    assert queries.ledgers.of("of-its-own", "file:/other", TABLE) == FARES


def test_a_second_sink_is_rejected_when_both_are_prepared_and_then_started(queries: Queries) -> None:
    first = Writer()
    queries.ledgers.keep(FLIGHTS, ["board"], checkpoint="/first", writer=first, sink_name=TABLE)
    queries.start(FARES)
    with pytest.raises(InvalidOption, match=", for the query with checkpoint 'file:/c'"):
        queries.ledgers.of("board", "file:/first", TABLE)


def test_edit_and_run_again(queries: Queries) -> None:
    queries.start(FLIGHTS)
    queries.active.clear()
    queries.start(FARES, checkpoint="/edited")
    assert queries.ledgers.of("board", "file:/edited", TABLE) == FARES
    queries.active.clear()
    queries.start(FLIGHTS, checkpoint="/edited")
    assert queries.ledgers.of("board", "file:/edited", TABLE) == FLIGHTS, "the same checkpoint, with another sink"


def test_a_query_that_has_ended_is_forgotten_with_its_writer(queries: Queries) -> None:
    writer: Writer | None = queries.start(FLIGHTS)
    queries.active.clear()
    queries.start(FARES, "another", checkpoint="/other")
    assert queries.ledgers.of("board", "file:/c", TABLE) == FLIGHTS, "its writer can start it again"
    del writer
    queries.start(FARES, "another", checkpoint="/other")
    assert queries.ledgers.of("board", "file:/c", TABLE) is None


@pytest.mark.parametrize("call", ["resolved", "active"])
def test_X2_a_query_that_starts_meanwhile_keeps_its_ledger(queries: Queries, call: str) -> None:
    """Its writer is deleted, and the thread that starts another query has read the active queries before."""
    queries.meanwhile[call] = lambda: queries.start(FLIGHTS)
    queries.start(FARES, "another", checkpoint="/other")
    assert not queries.meanwhile
    assert queries.ledgers.of("board", "file:/c", TABLE) == FLIGHTS


def test_X2_a_query_that_ends_and_starts_again_meanwhile_keeps_its_ledger(queries: Queries) -> None:
    queries.start(FLIGHTS)
    queries.active.clear()
    queries.meanwhile["active"] = lambda: queries.start(FLIGHTS)
    queries.start(FARES, "another", checkpoint="/other")
    assert queries.ledgers.of("board", "file:/c", TABLE) == FLIGHTS


@pytest.mark.parametrize("sink_name", ["ConsoleTable$", FOREACH_BATCH, "streamgroups", OTHER])
def test_a_later_query_with_another_sink_has_no_ledger(queries: Queries, sink_name: str) -> None:
    """It has the checkpoint of the query before it, whose writer still exists. Its batches do not move that ledger."""
    writer = queries.start(FLIGHTS)
    assert queries.ledgers.of("board", "file:/c", sink_name) is None
    assert queries.ledgers.of("board", None, sink_name) is None
    assert queries.ledgers.of("board", "file:/c", None) == FLIGHTS, "the sink of the query is unknown"
    assert writer is not None


def test_a_later_function_without_the_ledger_has_none(queries: Queries) -> None:
    ledger: Writer | None = queries.start(FLIGHTS, sink_name=FOREACH_BATCH)
    assert queries.ledgers.of("board", "file:/c", FOREACH_BATCH) == FLIGHTS
    del ledger
    assert queries.ledgers.of("board", "file:/c", FOREACH_BATCH) is None
    queries.start(FLIGHTS)
    assert queries.ledgers.of("board", "file:/c", TABLE) == FLIGHTS, "the running query needs no writer"


def test_a_ledger_that_does_not_pickle_is_rejected_at_once(queries: Queries) -> None:
    with pytest.raises(InvalidOption, match="ledger of group 'billing' cannot be pickled"):
        queries.start(threading.Lock(), "billing")
