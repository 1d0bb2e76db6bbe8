"""X2: a batch is divided into few statements. Each of them writes as if its rows came one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups_sinks.postgres.staged_rows import Break, Run, TaskRows, count, cut, runs

_ROWS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30)


def breaks_of(rows: list[tuple[int, bool]]) -> list[Break]:
    """A row that the query of the server returns."""
    found, last = [], dict[int, int]()
    for i, (key, deletes) in enumerate(rows):
        if i == 0 or key in last or rows[i - 1][1] != deletes:
            found.append(Break(i, last.get(key), deletes))
        last[key] = i
    return found


@given(_ROWS)
def test_a_statement_ends_only_where_it_must(rows: list[tuple[int, bool]]) -> None:
    expected: list[Run] = []
    for i, (key, deletes) in enumerate(rows):
        run = expected[-1] if expected else None
        if run is None or run.deletes != deletes or key in {k for k, _ in rows[run.first : run.end]}:
            expected.append(Run(i, i + 1, deletes))
        else:
            expected[-1] = Run(run.first, i + 1, deletes)
    assert runs(len(rows), breaks_of(rows)) == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 25), st.integers(0, 25))
def test_a_part_has_the_rows_of_its_positions(sizes: list[int], first: int, end: int) -> None:
    piece = tuple(TaskRows(i, 3, 3 + size) for i, size in enumerate(sizes))
    rows = [(it.attempt, row) for it in piece for row in range(it.first, it.end)]
    part = cut(piece, first, end)
    assert [(it.attempt, row) for it in part for row in range(it.first, it.end)] == rows[first:end]
    assert count(part) == len(rows[first:end])
