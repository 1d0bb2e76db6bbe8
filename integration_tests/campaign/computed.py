"""The workloads whose output is computed, and the plain programs that compute it again. Used by ``integration_tests.campaign``.

Key and time of a record follow from its number, and record ``number`` is in partition ``number % PARTITIONS``. So a plain program needs
the numbers of records only. Each row of the output is JSON with its name (``row``) and its content (``result``), and has exactly one
correct result, however batches cut the records. ``campaign.computing_queries`` has the queries. Windows with late records and resets have
a module of their own (``campaign.windows``). Source: SEMANTICS S10, S12, W13, W18, X5.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from integration_tests.campaign import windows
from integration_tests.campaign.windows import CLOSING, PARTITIONS, START_MS, STEP_MS
from streamgroups_testkit.producing import NOW

#: How long an id is seen. An operator can forget it up to an eighth later.
HORIZON_MS = 120_000
_FORGOTTEN_MS = HORIZON_MS * 9 // 8
#: The distance of a duplicate from its id, in groups of three records of a partition: within the horizon, and after it.
_NEAR_GROUPS, _FAR_GROUPS = 10, 200
#: The greatest difference of the times of joined records, and the delay of their watermark.
WITHIN_MS, JOIN_DELAY_MS = 5_000, 20_000
#: The number of keys of a partition in a join: records of one key are 20 s apart.
_JOIN_KEYS = 50
#: The windows of a chain, and the delay of their watermark.
INNER_MS, OUTER_MS, CHAIN_DELAY_MS = 10_000, 60_000, 20_000
#: The number of places to which a topic is repartitioned.
PLACES = 7


@dataclass(frozen=True, slots=True)
class ComputedRow:
    """A row of an output.

    Args:
        number: the record that completes it.
        row: its name.
        result: its content.
    """

    number: int
    row: str
    result: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A workload.

    Args:
        key_of: the key of a record, by its number.
        time_ms_of: its timestamp.
        expected: returns all rows, for the number of records of the topic and of the right topic of a join, without those that close
            windows.
        delay_ms: the delay of the watermark; ``None`` without event time.
        right_time_ms_of: the timestamps of the right topic of a join; ``None`` without a join.
        has_states: whether an operator has a state for each partition.
    """

    key_of: Callable[[int], str]
    time_ms_of: Callable[[int], int]
    expected: Callable[[int, int], Iterator[ComputedRow]]
    delay_ms: int | None = None
    right_time_ms_of: Callable[[int], int] | None = None
    has_states: bool = True


def dedup_key(number: int) -> str:
    """An id of a record. The third record of each three repeats one of an earlier record of its partition.

    Every second one of them is so late that its id was forgotten.

    >>> [dedup_key(PARTITIONS * i) for i in (0, 1, 2, 601, 603, 605)]
    ['0-0', '0-1', '0-1', '0-601', '0-603', '0-3']
    """
    partition, i = number % PARTITIONS, number // PARTITIONS
    group, place = divmod(i, 3)
    if place == 2:
        near = group % 7 * _NEAR_GROUPS
        if group % 2 == 0:
            i = 3 * (group - near if near <= group else group) + 1
        elif group >= _FAR_GROUPS:
            i = 3 * (group - _FAR_GROUPS)
    return f"{partition}-{i}"


def _steady_time_ms(number: int) -> int:
    return START_MS + number * STEP_MS


def _first_records(count: int, _: int) -> Iterator[ComputedRow]:
    """The first record of each id, and those after the horizon."""
    seen: dict[str, int] = {}
    for number in range(count):
        key, time_ms = dedup_key(number), _steady_time_ms(number)
        age_ms = time_ms - seen.get(key, -_FORGOTTEN_MS)
        assert age_ms <= HORIZON_MS or age_ms >= _FORGOTTEN_MS, f"{number}: an operator may forget {key}, or not"
        if age_ms > HORIZON_MS:
            seen[key] = time_ms
            yield ComputedRow(number, f"record {number}", key)


def _running_counts(count: int, _: int) -> Iterator[ComputedRow]:
    """The number and the sum of the records of each key, for each record."""
    sums: defaultdict[str, int] = defaultdict(int)
    counts = Counter[str]()
    for number in range(count):
        key = windows.key_of(number)
        counts[key] += 1
        sums[key] += number
        yield ComputedRow(number, f"record {number}", f"n {counts[key]}, total {sums[key]}")


def join_key(number: int) -> str:
    """A key of a join: a place of its partition."""
    return f"{number % PARTITIONS}-{number // PARTITIONS % _JOIN_KEYS}"


def right_time_ms(number: int) -> int:
    """The timestamp of a right record. Some records match none, and some two."""
    return windows.time_ms_of(number) + number * 3_571 % 25_000 // 5_000 * 2_000


def _on_time(count: int, time_ms_of: Callable[[int], int]) -> dict[str, list[tuple[int, int]]]:
    """The times and numbers of the records that are not late by the watermark of their partition, by key."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    newest_ms: dict[int, int] = {}
    for number in (*range(count), *range(CLOSING, CLOSING + PARTITIONS)):
        partition, time_ms = number % PARTITIONS, time_ms_of(number)
        if partition not in newest_ms or time_ms >= newest_ms[partition] - JOIN_DELAY_MS:
            found[join_key(number)].append((time_ms, number))
        newest_ms[partition] = max(time_ms, newest_ms.get(partition, time_ms))
    return {key: sorted(records) for key, records in found.items()}


def _closing(key: str) -> int:
    """The record that closes the windows of the partition of a key."""
    return CLOSING + int(key.partition("-")[0])


def _pairs(count: int, right_count: int) -> Iterator[ComputedRow]:
    """The pairs of records with equal keys and close times, and the records without a match."""
    left, right = _on_time(count, windows.time_ms_of), _on_time(right_count, right_time_ms)
    for key in left.keys() | right.keys():
        times_ms = [time_ms for time_ms, _ in right.get(key, ())]
        matched: set[int] = set()
        for time_ms, number in left.get(key, ()):
            first, end = bisect_left(times_ms, time_ms - WITHIN_MS), bisect_right(times_ms, time_ms + WITHIN_MS)
            others = [other for _, other in right.get(key, ())[first:end]]
            matched.update(others)
            for match in map(str, others) if others else ("none",):
                yield ComputedRow(_closing(key), f"left {number}, right {match}", key)
        for _, other in right.get(key, ()):
            if other not in matched:
                yield ComputedRow(_closing(key), f"left none, right {other}", key)


def _peaks(count: int, _: int) -> Iterator[ComputedRow]:
    """The number of short windows, and the largest of them, in each long window."""
    records = windows.all_records(count)
    watermark = records.groupby("partition").newest.shift() - CHAIN_DELAY_MS
    start = records.time - records.time % INNER_MS
    in_time = records.assign(inner=start)[~(start + INNER_MS <= watermark) & (records.number < CLOSING)]
    inner = in_time.groupby(["place", "inner"], as_index=False).agg(n=("number", "size"))
    inner["outer"] = inner.inner - inner.inner % OUTER_MS
    for it in inner.groupby(["place", "outer"]).n.agg(["size", "max"]).reset_index().to_dict("records"):
        yield ComputedRow(
            _closing(it["place"]), f"{it['place']} at {it['outer']}", f"windows {it['size']}, busiest {it['max']}"
        )


def place_of(number: int) -> str:
    """The place by which a record is repartitioned."""
    return str(number * 613 % PLACES)


def _places(count: int, _: int) -> Iterator[ComputedRow]:
    """Each record with its place."""
    for number in range(count):
        yield ComputedRow(number, f"record {number}", place_of(number))


#: The workloads by their kind.
COMPUTED: Mapping[str, Computed] = MappingProxyType(
    {
        "dedup": Computed(dedup_key, _steady_time_ms, _first_records),
        "function": Computed(windows.key_of, lambda _: NOW, _running_counts),
        "join": Computed(join_key, windows.time_ms_of, _pairs, delay_ms=JOIN_DELAY_MS, right_time_ms_of=right_time_ms),
        "chained": Computed(windows.key_of, windows.time_ms_of, _peaks, delay_ms=CHAIN_DELAY_MS),
        "repartition": Computed(str, lambda _: NOW, _places, has_states=False),
    }
)


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """The differences of an output from the rows of a plain program, as names of rows.

    Args:
        lost: the rows that the output does not have.
        repeated: the rows that it has twice.
        different: the rows that it has with another result, and those that it may not have.
    """

    lost: list[str]
    repeated: list[str]
    different: list[str]


def compare_rows(expected: Iterable[ComputedRow], values: Sequence[str]) -> RowDifferences:
    """Compares an output with the rows of a plain program.

    Args:
        expected: the rows.
        values: the rows of the output, as JSON.

    >>> rows = [ComputedRow(0, "a", "1"), ComputedRow(1, "b", "2"), ComputedRow(2, "c", "3")]
    >>> compare_rows(rows, ['{"row": "a", "result": "1"}', '{"row": "a", "result": "1"}', '{"row": "b", "result": "7"}'])
    RowDifferences(lost=['c'], repeated=['a'], different=['b'])
    """
    results = {it.row: it.result for it in expected}
    written = Counter(parse_row(it) for it in values)
    rows = {row for row, _ in written}
    return RowDifferences(
        lost=sorted(results.keys() - rows),
        repeated=sorted(row for (row, _), n in written.items() if n > 1),
        different=sorted(row for row, result in written if results.get(row) != result),
    )


def parse_row(value: str) -> tuple[str, str]:
    """The name and the result of a row.

    >>> parse_row('{"row": "record 7", "result": "n 2, total 9"}')
    ('record 7', 'n 2, total 9')
    """
    found = json.loads(value)
    return found["row"], found["result"]


def places_apart(arrived: Iterable[tuple[int, str]]) -> list[str]:
    """The places of a repartitioned topic whose records are in several partitions.

    Args:
        arrived: the partition and the value of each row.

    >>> places_apart([(0, '{"row": "record 1", "result": "4"}'), (1, '{"row": "record 8", "result": "4"}')])
    ['place 4 in partitions [0, 1]']
    """
    partitions: defaultdict[str, set[int]] = defaultdict(set)
    for partition, value in arrived:
        partitions[parse_row(value)[1]].add(partition)
    return [f"place {place} in partitions {sorted(it)}" for place, it in sorted(partitions.items()) if len(it) > 1]
