"""The workloads with computed rows: their plain programs against slower ones, and the differences that their verdict finds."""

from __future__ import annotations

import doctest
import json
from collections import Counter, defaultdict

import pytest

from integration_tests.campaign import computed, cursor_member
from integration_tests.campaign.computed import (
    CHAIN_DELAY_MS,
    COMPUTED,
    HORIZON_MS,
    INNER_MS,
    JOIN_DELAY_MS,
    OUTER_MS,
    WITHIN_MS,
    ComputedRow,
    compare_rows,
    join_key,
    right_time_ms,
)
from integration_tests.campaign.resets import is_letter
from integration_tests.campaign.settings import Settings, parser, protocols_of, settings_of
from integration_tests.campaign.verdict import judged
from integration_tests.campaign.windows import CLOSING, PARTITIONS, key_of, time_ms_of

COUNT, RIGHT_COUNT = 6_000, 5_300


def _rows(kind: str) -> dict[str, str]:
    found = list(COMPUTED[kind].expected(COUNT, RIGHT_COUNT))
    rows = {it.row: it.result for it in found}
    assert len(rows) == len(found) > COUNT // 100, "each row has one result"
    return rows


@pytest.mark.parametrize("module", [computed, cursor_member])
def test_the_examples(module: object) -> None:
    assert doctest.testmod(module)[0] == 0  # type: ignore[arg-type]


def test_dedup_has_duplicates_within_the_horizon_and_after_it() -> None:
    kept = {int(row.split()[1]) for row in _rows("dedup")}
    times: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    of_kind = COMPUTED["dedup"]
    for number in range(COUNT):
        times[of_kind.key_of(number)].append((of_kind.time_ms_of(number), number))
    kinds = Counter[str]()
    for records in times.values():
        first_ms = -HORIZON_MS * 2
        for time_ms, number in records:
            is_seen = time_ms - first_ms <= HORIZON_MS
            kinds["dropped" if is_seen else "again" if first_ms > 0 else "first"] += 1
            assert (number in kept) is not is_seen
            first_ms = first_ms if is_seen else time_ms
    assert kinds["dropped"] > 100
    assert kinds["again"] > 100


def test_joins_compare_each_record_with_each_other_one() -> None:
    sides = []
    for count, time_of in ((COUNT, time_ms_of), (RIGHT_COUNT, right_time_ms)):
        on_time, newest_ms = [], dict.fromkeys(range(PARTITIONS), -(10**18))
        for number in (*range(count), *range(CLOSING, CLOSING + PARTITIONS)):
            time_ms = time_of(number)
            if time_ms >= newest_ms[number % PARTITIONS] - JOIN_DELAY_MS:
                on_time.append((join_key(number), time_ms, number))
            newest_ms[number % PARTITIONS] = max(time_ms, newest_ms[number % PARTITIONS])
        sides.append(on_time)
    by_key: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, time_ms, number in sides[1]:
        by_key[key].append((time_ms, number))
    expected, matched = {}, set()
    for key, time_ms, number in sides[0]:
        pairs = [other for other_ms, other in by_key[key] if abs(other_ms - time_ms) <= WITHIN_MS]
        matched |= {*pairs}
        expected |= {f"left {number}, right {other}": key for other in pairs or ["none"]}
    expected |= {f"left none, right {n}": key for key, _, n in sides[1] if n not in matched}
    assert _rows("join") == expected
    kinds = Counter((row.startswith("left none"), row.endswith("none")) for row in expected)
    assert min(kinds.values()) > 100, "pairs, and records without a match on both sides"
    assert len(sides[0]) < COUNT, "some records are late"


def test_chains_count_one_record_after_the_other() -> None:
    newest_ms = dict.fromkeys(range(PARTITIONS), -(10**18))
    inner = Counter[tuple[str, int]]()
    n_late = 0
    for number in range(COUNT):
        time_ms, partition = time_ms_of(number), number % PARTITIONS
        start_ms = time_ms - time_ms % INNER_MS
        is_late = start_ms + INNER_MS <= newest_ms[partition] - CHAIN_DELAY_MS
        n_late += is_late
        inner[key_of(number), start_ms] += not is_late
        newest_ms[partition] = max(newest_ms[partition], time_ms)
    outer: defaultdict[str, list[int]] = defaultdict(list)
    for (key, start_ms), n in inner.items():
        if n:
            outer[f"{key} at {start_ms - start_ms % OUTER_MS}"].append(n)
    assert _rows("chained") == {row: f"windows {len(it)}, busiest {max(it)}" for row, it in outer.items()}
    assert n_late > 100


def test_functions_count_the_records_of_each_key() -> None:
    rows = _rows("function")
    numbers = [n for n in range(COUNT) if key_of(n) == key_of(17)]
    assert rows[f"record {numbers[2]}"] == f"n 3, total {sum(numbers[:3])}"


def test_repartitioned_records_have_their_place() -> None:
    assert Counter(_rows("repartition").values()).keys() == set("0123456")


def _values(rows: dict[str, str]) -> list[tuple[int, str]]:
    return [(0, json.dumps({"row": row, "result": result})) for row, result in rows.items()]


@pytest.mark.parametrize("kind", sorted(COMPUTED))
def test_a_verdict_finds_each_difference(kind: str) -> None:
    rows = _rows(kind)
    assert judged(kind, Counter(), COUNT, _values(rows), [], n_right=RIGHT_COUNT).holds
    first, second, third, *_ = rows
    wrong = [it for it in _values({**rows, second: "another", "new": ""}) if first not in it[1].split('"')]
    found = judged(kind, Counter(), COUNT, [*wrong, *_values({third: rows[third]})], [], n_right=RIGHT_COUNT)
    assert (found.lost, found.repeated, sorted(found.different)) == ([first], [third], sorted([second, "new"]))


def test_a_row_with_two_results_is_different() -> None:
    values = [json.dumps({"row": "a", "result": it}) for it in ("1", "2")]
    assert compare_rows([ComputedRow(0, "a", "1")], values).different == ["a"]


def test_a_record_is_in_the_output_or_a_dead_letter() -> None:
    numbers = range(400)
    output = [(n % PARTITIONS, str(n)) for n in numbers if not is_letter(n)]
    letters = [str(n) for n in numbers if is_letter(n)]
    assert judged("poison", Counter(), 400, output, [], letters).holds
    found = judged("poison", Counter(), 400, [*output[:-1], (1, letters[1])], [], [*letters[1:], letters[1], "5"])
    assert found.lost == [letters[0], "399"]
    assert found.repeated == [letters[1]]
    assert found.different == [letters[1], "5"]


def _settings(*options: str) -> Settings:
    return settings_of(parser(None).parse_args(["kafka", *options]))


def test_a_kind_without_its_protocol_or_sink_is_rejected() -> None:
    both = ("classic", "consumer")
    assert protocols_of(_settings("--kind", "join"), "kafka", both) == ["consumer"]
    assert protocols_of(_settings("--kind", "cursors"), "none", both) == [*both]
    with pytest.raises(ValueError, match="--protocols consumer"):
        protocols_of(_settings("--kind", "join"), "kafka", ("classic",))
    with pytest.raises(ValueError, match="has the protocol classic only"):
        protocols_of(_settings("--kafka-version", "3.9.2"), "kafka", ("consumer",))
    assert protocols_of(_settings("--kafka-version", "3.9.2"), "kafka", both) == ["classic"]
    for kind, sink in (("cursors", "kafka"), ("function", "none")):
        with pytest.raises(ValueError, match="the sink of --kind cursors is 'none'"):
            protocols_of(_settings("--kind", kind), sink, both)
