"""S10: the state of a function is that of a fold record by record, however batches cut the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import FunctionFailed, StateMismatch
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators import merging
from streamgroups_operators.function_operator import FunctionOperator, StateFunction
from streamgroups_operators.keys import newest_rows, rows_of_keys
from streamgroups_operators.operator import BatchTime, PartReader, State
from streamgroups_operators.store import Operator, StateStore
from streamgroups_operators.task_states import TaskStates
from unit_tests.fake_state_files import FakeStateFiles

P0 = TopicPartition("flights", 0)
TOPIC = TopicIdentity("c1", "t1")
NOW_MS = 1_732_334_000_000
Key = tuple[str | None, int | None]
ROWS = pa.schema([("key", pa.string()), ("site", pa.int64()), ("n", pa.int64()), ("values", pa.list_(pa.int64()))])
OUTPUT = pa.schema([("offset", pa.int64()), ("key", pa.string()), ("n", pa.int64())])


@dataclass(frozen=True)
class Record:
    key: str | None
    site: int | None
    value: int | None


RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([1, 2, None]),
        st.one_of(st.none(), st.integers(-5, 5)),
    ),
    max_size=60,
)


def fold(state: dict[Key, list[int]], records: Sequence[tuple[int, Record]]) -> list[tuple[int, str | None, int]]:
    """Collects the values of each key. A record without a value removes its key. Returns one row for each record."""
    output = []
    for offset, record in records:
        key = (record.key, record.site)
        if record.value is None:
            state.pop(key, None)
        else:
            state[key] = [*state.get(key, []), record.value]
        output.append((offset, record.key, len(state.get(key, []))))
    return output


def states_of(table: pa.Table) -> dict[Key, list[int]]:
    found = {(row["key"], row["site"]): row["values"] for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def collect(state: pa.Table, records: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    assert state.schema == ROWS
    found = states_of(state)
    rows = fold(
        found,
        [(row.pop("offset"), Record(**row)) for row in records.select(["offset", "key", "site", "value"]).to_pylist()],
    )
    after = [{"key": k, "site": s, "values": values, "n": len(values)} for (k, s), values in found.items()]
    # In another order of columns, and with the output of another type that can be cast.
    return (
        pa.Table.from_pylist(after, pa.schema([ROWS.field(i) for i in (2, 0, 3, 1)])),
        pa.table({name: list(column) for name, column in zip(OUTPUT.names, zip(*rows, strict=True), strict=True)})
        if rows
        else OUTPUT.empty_table(),
    )


COLLECT = FunctionOperator("board", collect, ("key", "site"), ROWS, OUTPUT)


class Query:
    """Runs an operator over ranges, each in a task of its own that shares nothing but files with the others."""

    def __init__(self, operator: FunctionOperator = COLLECT) -> None:
        self.operator, self.files, self.attempts, self.now_ms = operator, FakeStateFiles(), 0, NOW_MS
        self.state: New | Named = New()
        self.scope = Operator("billing", operator.name, operator.form, operator.schema)

    def run(
        self, records: Sequence[Record], first: int, end: int, read_from: int | None = None, chunk: int = 7
    ) -> tuple[Manifest, list[dict[str, Any]]]:
        """Runs a batch. The records are those of the partition from offset 0 on."""
        self.attempts += 1
        read_from = first if read_from is None else read_from
        ranges = (RangePlan(OffsetRange(P0, first, end), self.state, read_from, TOPIC),)
        plan = TaskPlan("memory", "billing", self.now_ms, "1f3a9c2b7d10", self.attempts, ranges)
        task = TaskStates(self.operator, plan, StateStore(self.scope, self.files))
        for at in range(read_from, end, chunk):
            task.add(batch(records[at : min(at + chunk, end)], at))
        manifest, output = task.finish(plan.file(self.attempts))
        return manifest, [row for table in output for row in table.to_pylist()]

    def advance(self, records: Sequence[Record], first: int, end: int, chunk: int = 7) -> list[dict[str, Any]]:
        """Runs a batch and continues with its state."""
        manifest, rows = self.run(records, first, end, chunk=chunk)
        self.state = Named(manifest.file, end)
        return rows

    def seek(self, offset: int) -> int:
        """Continues at an offset that a tool has set. Returns the first offset to read."""
        choice = StateStore(self.scope, self.files).find(Position(P0, offset, Unnamed(), TOPIC))
        if isinstance(choice, Stored):
            self.state = Named(choice.file, choice.state.next_offset)
        else:
            self.state = New()
        return choice.read_from

    def stored(self, keys: Sequence[Key]) -> pa.Table:
        """The state of some keys."""
        received = []

        def observe(state: pa.Table, _records: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
            received.append(state)
            return state, self.operator.output.empty_table()

        end = self.state.next_offset if isinstance(self.state, Named) else 0
        of, self.operator = self.operator, replace(self.operator, function=observe)
        records = [Record(None, None, None)] * end + [Record(key, site, None) for key, site in keys]
        self.run(records, end, len(records), chunk=100)
        self.operator = of
        return received[0]


def batch(records: Sequence[Record], first: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(first, first + len(records)), pa.int64()),
            "key": pa.array([r.key for r in records], pa.string()),
            "site": pa.array([r.site for r in records], pa.int32()),
            "value": pa.array([r.value for r in records], pa.int64()),
        }
    )


ALL_KEYS: list[Key] = [(key, site) for key in ("a", "b", "c", None) for site in (1, 2, None)]


def outputs(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str | None, int]]:
    return [(row["offset"], row["key"], row["n"]) for row in rows]


# ---- the fold --------------------------------------------------------------------------------------------------------


@given(RECORDS, st.data())
def test_S10_however_batches_cut_the_records_state_and_output_are_the_same(
    records: list[Record], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=12)))
    query, rows = Query(), []
    for first, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        if data.draw(st.booleans()):
            # An attempt that is replaced. It may have read further.
            query.run(records, first, data.draw(st.integers(first, len(records))))
        with patch.object(merging, "MAX_MERGE_BYTES", data.draw(st.sampled_from([1, 300, 1 << 30]))):
            rows += query.advance(records, first, end, data.draw(st.integers(1, 9)))
    state: dict[Key, list[int]] = {}
    assert outputs(rows) == fold(state, list(enumerate(records)))
    assert states_of(query.stored(ALL_KEYS)) == state


@given(RECORDS, st.data())
def test_S10_a_reset_to_any_offset_continues_with_the_state_of_that_offset(
    records: list[Record], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=5)))
    query = Query()
    for first, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        query.advance(records, first, end)
    target = data.draw(st.integers(0, len(records)))
    read_from = query.seek(target)
    manifest, rows = query.run(records, target, len(records), read_from)
    query.state = Named(manifest.file, len(records))
    state: dict[Key, list[int]] = {}
    assert outputs(rows) == fold(state, list(enumerate(records)))[target:]
    assert states_of(query.stored(ALL_KEYS)) == state


# ---- the function ----------------------------------------------------------------------------------------------------


def test_S10_the_function_receives_the_state_of_the_keys_of_its_records_only() -> None:
    query = Query()
    records = [Record("a", 1, 5), Record("b", 1, 6), Record("a", 2, 7), Record("b", 1, 8)]
    query.advance(records, 0, 3)
    assert states_of(query.stored([("b", 1), ("a", 3)])) == {("b", 1): [6]}
    query.advance(records, 3, 4)
    assert states_of(query.stored(ALL_KEYS)) == {("a", 1): [5], ("b", 1): [6, 8], ("a", 2): [7]}


def test_S10_without_records_the_function_is_not_called_and_the_state_stays() -> None:
    query = Query()
    records = [Record("a", 1, 5)]
    query.advance(records, 0, 1)
    first = query.state
    assert query.advance(records, 1, 1) == []
    assert query.state != first
    assert states_of(query.stored(ALL_KEYS)) == {("a", 1): [5]}
    assert Query().run([], 0, 0)[0].states[0].parts == {}


def test_S10_the_function_receives_the_time_of_the_batch() -> None:
    times = []

    def observe(state: pa.Table, records: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        times.append(time.now_ms)
        return collect(state, records, time)

    query = Query(replace(COLLECT, function=observe))
    query.run([Record("a", 1, 5)], 0, 1)
    assert times == [NOW_MS]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([b"a", None, b"b"]),
        pa.array([1.5, None, float("nan")]),
        pa.array([True, None, False]),
        pa.array([Decimal("1.20"), None, Decimal("3.40")]),
        pa.array([1, None, 2], pa.timestamp("us", "UTC")),
        pa.array([1, None, 2], pa.date32()),
    ],
    ids=lambda keys: str(keys.type),
)
def test_S10_keys_of_all_types_are_compared(keys: pa.Array) -> None:
    rows = pa.table({"key": pa.concat_arrays([keys, keys]), "n": range(6)})
    assert newest_rows(rows, ["key"])["n"].to_pylist() == [3, 4, 5]
    for i in range(3):
        assert rows_of_keys(rows, rows.select(["key"]).slice(i, 1))["n"].to_pylist() == [i, i + 3]


# ---- cost ------------------------------------------------------------------------------------------------------------


def test_S10_a_partition_has_few_segments_and_a_batch_writes_few_rows() -> None:
    query = Query()
    records = [Record(str(i), 1, 1) for i in range(120)]
    written = 0
    for i in range(120):
        query.advance(records, i, i + 1)
        assert isinstance(query.state, Named)
        manifest, _ = query.run(records, i + 1, i + 1)
        [segments] = manifest.states[0].parts.values()
        sizes = [segment.rows for segment in segments]
        assert sum(sizes) == i + 1
        assert all(older > 2 * newer for older, newer in pairwise(sizes))
        written += sum(segment.rows for segment in segments if segment.file == query.state.file)
    assert len(sizes) <= 7
    # Each row is written once for each time that its segment doubles, not once for each batch.
    assert written < 120 * 7


def test_S10_keys_that_change_in_each_batch_have_one_row() -> None:
    query = Query()
    records = [Record("ab"[i % 2], 1, 1) for i in range(40)]
    for i in range(0, 40, 2):
        query.advance(records, i, i + 2)
    manifest, _ = query.run(records, 40, 40)
    [segments] = manifest.states[0].parts.values()
    assert [segment.rows for segment in segments] == [2]


def test_S10_removed_keys_leave_no_rows() -> None:
    query = Query()
    records = [*(Record(str(i), 1, 1) for i in range(20)), *(Record(str(i), 1, None) for i in range(20))]
    query.advance(records, 0, 20)
    for i in range(20, 40):
        query.advance(records, i, i + 1)
    manifest, _ = query.run(records, 40, 40)
    assert manifest.states[0].parts == {}


# ---- expiry ----------------------------------------------------------------------------------------------------------


def test_S10_a_key_without_records_expires() -> None:
    query = Query(replace(COLLECT, expire_after_ms=1_000))
    records = [Record("a", 1, 5), Record("b", 1, 6), Record("b", 1, 7)]
    query.advance(records, 0, 2)
    query.now_ms += 600
    query.advance(records, 2, 3)
    query.now_ms += 399
    assert states_of(query.stored(ALL_KEYS)) == {("a", 1): [5], ("b", 1): [6, 7]}
    query.now_ms += 1
    assert states_of(query.stored(ALL_KEYS)) == {("b", 1): [6, 7]}
    assert states_of(query.stored([("a", 1)])) == {}


def test_S10_a_key_that_has_expired_stays_removed_for_an_earlier_clock() -> None:
    """The clock of the next owner can be behind, and a clock can be set back."""
    query = Query(replace(COLLECT, expire_after_ms=1_000))
    records = [Record("a", 1, 5), Record("a", 1, 6), Record("a", 1, None), Record("a", 1, 7)]
    query.advance(records, 0, 1)
    query.now_ms += 10
    query.advance(records, 1, 2)
    query.now_ms += 1_000
    query.advance(records, 2, 3)
    query.now_ms -= 500
    assert states_of(query.stored(ALL_KEYS)) == {}
    query.advance(records, 3, 4)
    assert states_of(query.stored(ALL_KEYS)) == {("a", 1): [7]}


@given(st.lists(st.tuples(st.lists(st.sampled_from([1, None]), max_size=3), st.integers(-900, 1_500)), max_size=20))
def test_S10_the_expiry_of_a_key_is_that_of_a_fold_for_any_clock(batches: list[tuple[list[int | None], int]]) -> None:
    query, records = Query(replace(COLLECT, expire_after_ms=1_000)), []
    state: dict[Key, list[int]] = {}
    updated_ms = NOW_MS
    for values, step_ms in batches:
        query.now_ms += step_ms
        first = len(records)
        records += [Record("a", 1, value) for value in values]
        if values and updated_ms <= query.now_ms - 1_000:
            state.clear()
        expected = fold(state, list(enumerate(records))[first:])
        updated_ms = query.now_ms if values else updated_ms
        assert outputs(query.advance(records, first, len(records))) == expected


def test_S10_expired_keys_leave_no_rows() -> None:
    query = Query(replace(COLLECT, expire_after_ms=1_000))
    records = [Record(str(i), 1, 5) for i in range(50)]
    for i in range(50):
        query.advance(records, i, i + 1)
        query.now_ms += 500
    manifest, _ = query.run(records, 50, 50)
    [segments] = manifest.states[0].parts.values()
    assert sum(segment.rows for segment in segments) <= 5


# ---- errors ----------------------------------------------------------------------------------------------------------


def returning(change: Callable[[pa.Table, pa.Table], Any]) -> StateFunction:
    def broken(state: pa.Table, records: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        return change(*collect(state, records, time))  # type: ignore[no-any-return]

    return broken


def _raise(_state: pa.Table, _output: pa.Table) -> None:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_raise, "has raised ZeroDivisionError: division by zero"),
        (lambda state, output: state, "has returned Table.*Return a tuple of two pyarrow.Table"),
        (lambda state, output: (state, None), r"has returned \['Table', 'NoneType'\]"),
        (
            lambda state, output: (state.drop(["n"]), output),
            "the state with key, values, site.*Return the columns: key",
        ),
        (lambda state, output: (state, output.append_column("n", output["n"])), "the output with offset, key, n, n"),
        (
            lambda state, output: (state, output.set_column(2, "n", pa.array(["x"] * output.num_rows))),
            r"the output with offset int64, key string, n string \(Failed to parse.*n int64",
        ),
        (
            lambda state, output: (pa.concat_tables([state, state]), output),
            r"several rows of state of the key \{'key': 'a', 'site': 1\}",
        ),
        (
            lambda state, output: (state.set_column(3, "site", pa.array([9] * state.num_rows, pa.int64())), output),
            r"a state of the key \{'key': 'a', 'site': 9\}, but the batch has no record of it",
        ),
    ],
)
def test_S10_the_error_of_a_function_names_it_and_its_records(
    change: Callable[[pa.Table, pa.Table], Any], text: str
) -> None:
    query = Query(replace(COLLECT, function=returning(change)))
    records = [Record("z", 1, 1)] * 5 + [Record("a", 1, 5), Record("b", 1, 5)]
    with pytest.raises(FunctionFailed, match=text) as e:
        query.run(records, 5, 7)
    assert str(e.value).startswith("The function 'broken' of operator 'board' has ")
    assert "the records of partition 0 from offset 5 to 6." in str(e.value)
    assert e.value.partition == 0
    assert query.files.list() == {}


def test_S10_the_error_of_a_function_names_the_topic() -> None:
    query = Query(replace(COLLECT, function=returning(_raise)))
    run = query.operator.begin(State(), PartReader(query.operator.schema), BatchTime(NOW_MS))
    run.add(pa.table(batch([Record("a", 1, 5)], 3)).append_column("topic", pa.array(["flights"])))
    with pytest.raises(FunctionFailed, match="the records of flights-0 from offset 3 to 3") as e:
        run.finish()
    assert e.value.topic == "flights"
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_S10_the_definition_names_everything_that_changes_the_state() -> None:
    forms = {
        COLLECT.form,
        replace(COLLECT, version=2).form,
        replace(COLLECT, by=("key",)).form,
        replace(COLLECT, rows=ROWS.set(2, pa.field("n", pa.int32()))).form,
        replace(COLLECT, rows=ROWS.remove(3)).form,
    }
    assert len(forms) == 5
    same = replace(COLLECT, function=returning(_raise), output=ROWS, expire_after_ms=5)
    assert same.form == COLLECT.form


# ---- a new version ---------------------------------------------------------------------------------------------------

TOTALS = pa.schema([("key", pa.string()), ("site", pa.int64()), ("total", pa.int64())])


def add(state: pa.Table, records: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """Version 2: the sum of the values of each key, instead of the values."""
    totals = {(row["key"], row["site"]): row["total"] for row in state.to_pylist()}
    for row in records.select(["key", "site", "value"]).to_pylist():
        key = row["key"], row["site"]
        if row["value"] is None:
            totals.pop(key, None)
        else:
            totals[key] = totals.get(key, 0) + row["value"]
    rows = [{"key": k, "site": s, "total": total} for (k, s), total in totals.items()]
    return pa.Table.from_pylist(rows, TOTALS), OUTPUT.empty_table()


def summed(rows: pa.Table) -> pa.Table:
    return pa.Table.from_pylist(
        [{"key": it["key"], "site": it["site"], "total": sum(it["values"])} for it in rows.to_pylist()], TOTALS
    )


def next_version(query: Query, migrate: Callable[[pa.Table], pa.Table] = summed) -> Query:
    """The query with version 2, on the same files."""
    new = Query(FunctionOperator("board", add, ("key", "site"), TOTALS, OUTPUT, 2, migrate={1: migrate}))
    new.files, new.state, new.attempts = query.files, query.state, query.attempts
    new.scope = replace(new.scope, migration=new.operator.migration)
    return new


@given(RECORDS, st.data())
def test_C3_a_new_version_continues_with_the_converted_state(records: list[Record], data: st.DataObject) -> None:
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(records)), min_size=3, max_size=6))), len(records)]
    query, changed = Query(), data.draw(st.integers(1, len(cuts) - 2))
    for number, (first, end) in enumerate(pairwise(cuts), 1):
        query.advance(records, first, end)
        if number == changed:
            query = next_version(query)
    expected: dict[Key, list[int]] = {}
    fold(expected, list(enumerate(records)))
    totals = {(row["key"], row["site"]): row["total"] for row in query.stored(ALL_KEYS).to_pylist()}
    assert totals == {key: sum(values) for key, values in expected.items()}


def test_C3_a_removed_key_is_not_converted() -> None:
    query, received = Query(), []
    # The second segment is so small that it is not merged with the first one.
    records = [Record(key, site, 4) for key in ("a", "b", "c") for site in (1, 2)] + [Record("a", 1, None)]
    query.advance(records, 0, 6)
    query.advance(records, 6, 7)

    def observed(rows: pa.Table) -> pa.Table:
        received.extend(zip(rows["key"].to_pylist(), rows["site"].to_pylist(), strict=True))
        return summed(rows)

    next_version(query, observed).advance([*records, Record("b", 1, 3)], 7, 8)
    assert sorted(received) == [("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]


def test_C3_a_conversion_keeps_the_time_of_the_last_records() -> None:
    query = Query()
    query.advance([Record("a", 1, 4)], 0, 1)
    new = next_version(query)
    new.operator = replace(new.operator, expire_after_ms=1_000)
    new.now_ms += 1_001
    assert new.stored([("a", 1)]).num_rows == 0


@pytest.mark.parametrize(
    ("migrate", "problem"),
    [
        (lambda rows: 1 / 0, "has raised ZeroDivisionError"),
        (lambda rows: rows, "has returned key, site, n, values"),
        (lambda rows: None, "has returned NoneType"),
        (lambda rows: pa.concat_tables([summed(rows)] * 2), "several rows of a key"),
        (lambda rows: pa.table({"key": ["x"], "site": [1], "total": [1]}), "a key that it has not received"),
        (lambda rows: pa.table({"key": ["a"], "site": [1], "total": ["x"]}), "has returned other types"),
    ],
)
def test_C3_a_conversion_that_fails_names_its_function(migrate: Callable[[pa.Table], Any], problem: str) -> None:
    query = Query()
    query.advance([Record("a", 1, 4)], 0, 1)
    with pytest.raises(FunctionFailed, match=problem):
        next_version(query, migrate).advance([Record("a", 1, 4)] * 2, 1, 2)


def test_C3_a_version_without_a_conversion_is_rejected() -> None:
    query = Query()
    query.advance([Record("a", 1, 4)], 0, 1)
    new = next_version(query)
    new.scope = replace(new.scope, migration=replace(new.operator, migrate={}).migration)
    with pytest.raises(StateMismatch, match=r"version 1.*version 2.*migrate="):
        new.advance([Record("a", 1, 4)] * 2, 1, 2)
