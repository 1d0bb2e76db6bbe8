"""The check of a campaign with windows: its plain count, and the differences that it finds."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from integration_tests.campaign.windows import (
    CLOSING,
    DELAY_MS,
    LATENESS_MS,
    PARTITIONS,
    SIZE_MS,
    STEP_MS,
    Differences,
    Reset,
    compare,
    plain_count,
)

COUNT = 20_000
EXPECTED = plain_count(COUNT)
#: The rows of a query that emits each revision.
ROWS = [
    json.dumps({"start": it.start, "place": it.place, "revision": it.revision, "n": it.n, "total": it.total})
    for it in EXPECTED.itertuples()
]


def time_ms(number: int) -> int:
    delay_ms = number * 104729 % 200_003 if number * 7919 % 1009 >= 700 else 0
    return 1_750_000_000_000 + number * STEP_MS - delay_ms


def test_the_plain_count_is_that_of_one_record_after_the_other() -> None:
    rows = {}
    for partition in range(PARTITIONS):
        newest_ms = -1
        panes: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        emitted = set()
        for offset, number in enumerate([*range(partition, COUNT, PARTITIONS), CLOSING + partition]):
            event_ms, watermark_ms = time_ms(number), newest_ms - DELAY_MS
            start_ms = event_ms - event_ms % SIZE_MS
            place = (start_ms, f"{partition}-{number * 613 % 7}")
            is_late = start_ms + SIZE_MS <= watermark_ms
            if start_ms + SIZE_MS + LATENESS_MS > watermark_ms:
                late, n, total = panes[place]
                panes[place] = [late + is_late, n + 1, total + offset]
            newest_ms = max(newest_ms, event_ms)
            if is_late and start_ms + SIZE_MS + LATENESS_MS > watermark_ms:
                late, *result = panes[place]
                rows[(*place, late)] = (*result, offset)
            for on_time in [it for it in panes if it[0] + SIZE_MS <= newest_ms - DELAY_MS and it not in emitted]:
                emitted.add(on_time)
                late, *result = panes[on_time]
                if late == 0:
                    rows[(*on_time, late)] = (*result, offset)
    found = {(it.start, it.place, it.revision): (it.n, it.total, it.offset) for it in EXPECTED.itertuples()}
    assert found == rows
    assert max(it[2] for it in rows) > 3, "some windows have late records"


def test_the_rows_of_the_plain_count_have_no_differences() -> None:
    assert compare(ROWS, COUNT) == Differences([], [], [])


def test_only_the_last_revision_is_required() -> None:
    last = EXPECTED.drop_duplicates(["start", "place"], keep="last").index
    assert compare([ROWS[i] for i in last], COUNT) == Differences([], [], [])
    assert len(compare([ROWS[i] for i in last[1:]], COUNT).missing) == 1
    assert len(compare([], COUNT).missing) == len(last)


@pytest.mark.parametrize("change", [{"n": 1_000}, {"total": 1}, {"revision": 99}, {"start": 5}, {"place": "9-9"}])
def test_another_result_is_found(change: dict[str, object]) -> None:
    changed = json.dumps(json.loads(ROWS[5]) | change)
    assert len(compare([*ROWS, changed], COUNT).different) == 1


def test_a_row_that_no_reset_explains_is_repeated() -> None:
    row = EXPECTED.iloc[7]
    assert len(compare([*ROWS, ROWS[7]], COUNT).repeated) == 1
    for reset, repeated in {
        Reset(row.partition, row.offset, row.offset + 1): 0,
        Reset(row.partition, 0, row.offset): 1,
        Reset(row.partition, row.offset + 1, COUNT): 1,
        Reset((row.partition + 1) % PARTITIONS, 0, COUNT): 1,
    }.items():
        assert len(compare([*ROWS, ROWS[7]], COUNT, [reset]).repeated) == repeated
