"""Whatever fails and succeeds, there is at most one line in ten seconds, and no failure is left uncounted."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from streamgroups.outages import LINE_EVERY_MS, FailureLine, LogState, RecoveryLine, failed, succeeded

EVENTS = st.lists(st.tuples(st.integers(0, 12_000), st.booleans()), max_size=60)


@given(EVENTS)
@example([(0, True), (2_000, False), (1_000, True), (2_000, False), (9_000, True)])
def test_lines(events: list[tuple[int, bool]]) -> None:
    state, now_ms, n_failed = LogState(), 0, 0
    lines: list[tuple[int, FailureLine | RecoveryLine]] = []
    for step_ms, is_failure in events:
        now_ms += step_ms
        n_failed += is_failure
        state, line = failed(state, now_ms) if is_failure else succeeded(state, now_ms)
        if line is not None:
            lines.append((now_ms, line))
    failures = [at_ms for at_ms, line in lines if isinstance(line, FailureLine)]
    assert all(b - a >= LINE_EVERY_MS for a, b in itertools.pairwise(failures))
    assert bool(failures) == bool(n_failed), "the first is logged at once"
    kinds = [type(line) for _, line in lines]
    assert (RecoveryLine, RecoveryLine) not in itertools.pairwise(kinds), "each recovery once, after its failure"
    assert kinds[:1] != [RecoveryLine]
