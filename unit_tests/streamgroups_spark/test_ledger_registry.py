"""X2, X4: the sink that keeps the ledger of a query, and for how long it is registered."""

from __future__ import annotations

import threading

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_spark.sinks.ledger_registry import Ledgers

FLIGHTS, FARES = DeltaSink(uri="/tables/flights"), DeltaSink(uri="/tables/fares")


class Writer:
    """What starts a query."""


class Queries:
    """The queries that run."""

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.ledgers = Ledgers(lambda: self.active, lambda checkpoint: f"file:{checkpoint}")

    def start(self, sink: object, *group_ids: str, checkpoint: str = "/c") -> Writer:
        writer = Writer()
        self.ledgers.keep(sink, group_ids or ("board",), checkpoint=checkpoint, writer=writer)
        self.active.add(f"file:{checkpoint}")
        return writer


@pytest.fixture
def queries() -> Queries:
    """See `Queries`."""
    return Queries()


def test_a_query_finds_its_own_sink(queries: Queries) -> None:
    queries.start(FLIGHTS, "board", "fares")
    assert [queries.ledgers.of(group, "file:/c") for group in ("board", "fares", "other")] == [FLIGHTS, FLIGHTS, None]


def test_another_query_of_the_group_has_no_ledger(queries: Queries) -> None:
    writer = queries.start(FLIGHTS)
    assert queries.ledgers.of("board", "file:/plain") is None
    assert writer is not None, "its query may be started again"


def test_where_the_checkpoint_is_not_known_the_group_counts(queries: Queries) -> None:
    assert queries.ledgers.of("board", None) is None
    writers = [
        queries.start(FLIGHTS, checkpoint="/a"),
        queries.start(DeltaSink(uri="/tables/flights"), checkpoint="/b"),
    ]
    assert queries.ledgers.of("board", None) == FLIGHTS
    queries.active.clear()
    writers.append(queries.start(FARES))
    with pytest.raises(InvalidOption, match="'board' has ledgers in several sinks"):
        queries.ledgers.of("board", None)


def test_a_second_sink_is_rejected_while_the_first_is_written_to(queries: Queries) -> None:
    queries.start(FLIGHTS, "board", "fares")
    with pytest.raises(
        InvalidOption, match=r"Group 'fares' already has a ledger in DeltaSink.*/tables/flights.* 'file:/c'"
    ):
        queries.start(FARES, "fares", checkpoint="/other")
    queries.start(FARES, "of-its-own", checkpoint="/other")
    assert queries.ledgers.of("of-its-own", "file:/other") == FARES


def test_a_second_sink_is_rejected_when_both_are_prepared_and_then_started(queries: Queries) -> None:
    first = Writer()
    queries.ledgers.keep(FLIGHTS, ["board"], checkpoint="/first", writer=first)
    queries.start(FARES)
    with pytest.raises(InvalidOption, match=", for the query with checkpoint 'file:/c'"):
        queries.ledgers.of("board", "file:/first")


def test_edit_and_run_again(queries: Queries) -> None:
    queries.start(FLIGHTS)
    queries.active.clear()
    queries.start(FARES, checkpoint="/edited")
    assert queries.ledgers.of("board", "file:/edited") == FARES
    queries.active.clear()
    queries.start(FLIGHTS, checkpoint="/edited")
    assert queries.ledgers.of("board", "file:/edited") == FLIGHTS, "the same checkpoint, with another sink"


def test_a_query_that_has_ended_is_forgotten_with_its_writer(queries: Queries) -> None:
    writer: Writer | None = queries.start(FLIGHTS)
    queries.active.clear()
    queries.start(FARES, "another", checkpoint="/other")
    assert queries.ledgers.of("board", "file:/c") == FLIGHTS, "its writer can start it again"
    del writer
    queries.start(FARES, "another", checkpoint="/other")
    assert queries.ledgers.of("board", "file:/c") is None


def test_a_ledger_that_does_not_pickle_is_rejected_at_once(queries: Queries) -> None:
    with pytest.raises(InvalidOption, match="ledger of group 'billing' cannot be pickled"):
        queries.start(threading.Lock(), "billing")
