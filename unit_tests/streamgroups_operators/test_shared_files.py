"""S10, W13: the state files of operators one after the other: a position needs those of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from streamgroups.identity import UNKNOWN
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState, Segment
from streamgroups.state.origins import UNNAMED, Named
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.state_retention import Retention
from streamgroups_operators.collection import Collector
from streamgroups_operators.shared_files import collect_all
from streamgroups_operators.store import NewState, Operator, StateStore, StoredStates
from unit_tests.fake_state_files import FakeStateFiles

P0 = TopicPartition("flights", 0)
MINUTE_MS = 60_000
NOW_MS = 1_732_334_000_000


class Operators:
    """Two operators of a query."""

    def __init__(self) -> None:
        self.files = {"minutes": FakeStateFiles(lambda: NOW_MS), "peaks": FakeStateFiles(lambda: NOW_MS)}

    def store(self, offset: int, minutes_ago: int, *operators: str, before: Sequence[Segment] = ()) -> StateFileName:
        file = StateFileName(NOW_MS - minutes_ago * MINUTE_MS, "1f3a9c2b7d10", 1, minutes_ago)
        for operator in operators or self.files:
            new = NewState(
                PartitionState(OffsetRange(P0, 0, offset), 0, UNKNOWN), {"0": [pa.table({"n": [1]}), *before]}
            )
            scope = Operator("billing", operator, "", pa.schema([("n", pa.int64())]))
            StateStore(scope, self.files[operator]).write(file, [new])
            self.files[operator].written_ms[file] = file.planned_ms
        return file

    def find(self, offset: int, operator: str = "minutes") -> Stored:
        beside = [StoredStates("billing", name, files) for name, files in self.files.items() if name != operator]
        found = StoredStates("billing", operator, self.files[operator], beside=beside).find(
            Position(P0, offset, UNNAMED)
        )
        assert isinstance(found, Stored)
        return found

    def collect(self, position: Position) -> None:
        rule = Retention(60 * MINUTE_MS, 30 * MINUTE_MS)
        collectors = [Collector(it, rule, lambda: NOW_MS) for it in self.files.values()]
        collect_all(collectors, [P0], lambda partitions: [position] if P0 in partitions else [])


@pytest.fixture
def both() -> Operators:
    return Operators()


def test_S10_a_state_that_one_operator_has_not_written_leads_to_no_position(both: Operators) -> None:
    complete = both.store(5, 20)
    both.store(9, 10, "minutes")
    assert both.find(12).file == complete


@pytest.mark.parametrize("operator", ["minutes", "peaks"])
def test_S10_a_state_whose_rows_of_one_operator_are_deleted_leads_to_no_position(
    both: Operators, operator: str
) -> None:
    both.store(3, 400)
    deleted = StateFileName(NOW_MS - 500 * MINUTE_MS, "1f3a9c2b7d10", 1, 500)
    both.store(5, 300, "minutes", before=[Segment(deleted, 0, 1, 8)])
    both.store(5, 300, "peaks")
    assert both.find(6, operator).read_from == 3


def test_S10_a_file_is_kept_while_one_operator_needs_it(both: Operators) -> None:
    both.store(3, 400)
    complete = both.store(5, 300)
    # Alone, the first operator would need this file instead of the complete one.
    both.store(5, 200, "minutes")
    both.collect(Position(P0, 5, UNNAMED))
    assert complete in both.files["minutes"].list()
    assert both.find(5).file == complete


def test_S10_files_that_no_operator_needs_are_deleted_from_all(both: Operators) -> None:
    both.store(3, 400)
    both.store(5, 300)
    named = both.store(7, 100)
    both.collect(Position(P0, 7, Named(named, 7)))
    assert [set(it.list()) for it in both.files.values()] == [{named}, {named}]
