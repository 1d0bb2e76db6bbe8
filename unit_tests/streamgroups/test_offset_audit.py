"""O6: an audit finds exactly the offsets that a group has passed without a batch, or has committed twice without a reset.

The oracle keeps the events of each single offset as a text, and judges it with a few rules for texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.gaps import Cause, Gap
from streamgroups.groups.offset_audit import (
    FINDINGS,
    Evidence,
    Facts,
    GroupAudit,
    LedgerFact,
    Letter,
    PartitionAudit,
    Verdict,
    audit,
)
from streamgroups.groups.offset_records import OffsetRecord, UnknownRecord, key_prefix, parse_offset_record
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from unit_tests.examples import examples

P0 = TopicPartition("flights", 0)
OFFSETS = 400


@dataclass
class History:
    """A group that commits, and what has happened to each offset: C committed, J jump, S skip by a reset, | reset back."""

    commits: list[OffsetRecord] = field(default_factory=list)
    events: list[str] = field(default_factory=lambda: [""] * OFFSETS)
    gaps: list[Gap] = field(default_factory=list)
    position: int = 0
    epoch: int = 1
    began: int = 0
    reset: AppliedReset = NO_RESET

    def _mark(self) -> str:
        return CommitMark(False, epoch=self.epoch, from_offset=self.began, reset=self.reset).encode()

    def _commit(self, metadata: str) -> None:
        self.commits.append(OffsetRecord(P0, self.position, metadata, len(self.commits)))

    def _happens(self, what: str, begin: int, end: int) -> None:
        for n in range(begin, end):
            self.events[n] += what

    def read(self, count: int) -> None:
        """The owner commits a batch."""
        end = min(self.position + count, OFFSETS)
        self._happens("C", self.position, end)
        self.position = end
        self._commit(self._mark())

    def repeat(self, count: int) -> None:
        """The owner repeats its last commit, because the response was lost."""
        for _ in range(count % 3):
            self._commit(self._mark())

    def hand_over(self, _: int) -> None:
        self.epoch, self.began = self.epoch + 1, self.position

    def reset_live(self, count: int) -> None:
        """An owner applies a reset request."""
        self._go(count, "S", "|")
        self.reset, self.began = self.reset.then("a1"), self.position
        self._commit(self._mark())

    def reset_by_tool(self, count: int) -> None:
        self._go(count, "S", "|")
        self.reset = self.reset.then("b2")
        self._commit(ToolMark(self.reset).encode())
        self.hand_over(0)

    def lose(self, count: int) -> None:
        """Records expire, and the query continues with onDataLoss=skip."""
        begin, self.position = self.position, min(self.position + count, OFFSETS)
        if begin < self.position:
            self.gaps.append(Gap(begin, self.position, Cause.EXPIRED, len(self.commits)))
            self._happens("G", begin, self.position)
            self.began = self.position
            self._commit(self._mark())

    def set_by_hand(self, count: int) -> None:
        """A client without marks sets the position. The next owner gives this an id."""
        self._go(count, "J", "")
        self._commit("")
        self.reset = self.reset.then("c3")
        self._commit(ToolMark(self.reset).encode())
        self.hand_over(0)

    def begin_elsewhere(self, count: int) -> None:
        """The next owner begins at a wrong offset."""
        self._go(count, "J", "")
        self.hand_over(0)
        self.read(3)

    def _go(self, count: int, forward: str, back: str) -> None:
        """An even count goes forward, an odd one back."""
        to = min(self.position + count, OFFSETS) if count % 2 == 0 else max(self.position - count, 0)
        if to < self.position:
            self._happens(back, to, OFFSETS)
        self._happens(forward, self.position, to)
        self.position = to

    def expected(self) -> dict[int, Verdict]:
        """The verdict on each offset."""
        committed = self.commits[-1].next_offset if self.commits else 0
        assert committed is not None
        found = {n: _expected(of, passed=n < committed) for n, of in enumerate(self.events)}
        return {n: it for n, it in found.items() if it is not None}

    def facts(self, **others: object) -> Facts:
        return Facts(P0, self.commits, self.gaps, **others)  # type: ignore[arg-type]


def _expected(events: str, *, passed: bool) -> Verdict | None:
    batches = events.replace("J", "").replace("S", "").replace("G", "")
    if "CC" in batches:
        return Verdict.DOUBLE
    if "G" in events:
        return Verdict.GAP if passed else None
    if "C" in batches:
        return Verdict.REPEATED if batches.count("C") > 1 else Verdict.ONCE
    changes = events.replace("|", "")
    if not changes or not passed:
        return None
    return Verdict.SKIPPED if changes[-1] == "S" else Verdict.MISSING


def _found(of: PartitionAudit) -> dict[int, Verdict]:
    ranges = [range(it.offsets.next_offset, it.offsets.end_offset) for it in of.ranges]
    offsets = [n for r in ranges for n in r]
    assert offsets == sorted(set(offsets)), "each offset has one verdict"
    return {n: it.verdict for it, r in zip(of.ranges, ranges, strict=True) for n in r}


CORRECT = ("read", "read", "repeat", "hand_over", "reset_live", "reset_by_tool")
ANY = (*CORRECT, "lose", "set_by_hand", "begin_elsewhere")


def _history(steps: Sequence[tuple[str, int]]) -> History:
    history = History()
    for name, count in steps:
        getattr(history, name)(count)
    # A position that no commit shows is not part of the evidence.
    history.read(7)
    return history


def _steps(names: Sequence[str], max_size: int = 30) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(1, 30)), max_size=max_size)


def _reads_expired(history: History) -> bool:
    """A reset into a gap: the oracle and the audit could disagree whether the records exist."""
    return any("G" in it and ("C" in it or it.count("G") > 1 or "J" in it or "S" in it) for it in history.events)


@settings(max_examples=examples(150))
@given(_steps(ANY))
def test_O6_each_offset_has_the_verdict_of_the_oracle(steps: list[tuple[str, int]]) -> None:
    history = _history([("read", 5), *steps])
    if not _reads_expired(history):
        assert _found(audit(history.facts())) == history.expected()


@settings(max_examples=examples(100))
@given(_steps(CORRECT), _steps(CORRECT), st.integers(1, 20), st.booleans())
def test_O6_a_planted_range_is_found_and_nothing_else(
    before: list[tuple[str, int]], after: list[tuple[str, int]], count: int, is_missing: bool
) -> None:
    history = _history([("read", 40), *before, ("read", 40)])
    assert not GroupAudit("board", 0, (audit(history.facts()),)).has_findings
    at = history.position
    if at + 40 > OFFSETS:
        return
    # A jump is even and forward, a step back is odd.
    distance = 2 * count if is_missing else 2 * (count % 10) + 1
    # Before a reset went back, the group has already read some of these offsets.
    never_read = {n for n in range(at, at + distance) if "C" not in history.events[n]}
    history.begin_elsewhere(distance)
    history.read(40)
    found = {n: it for n, it in _found(audit(history.facts())).items() if it in FINDINGS}
    verdict = Verdict.MISSING if is_missing else Verdict.DOUBLE
    assert found == dict.fromkeys(never_read if is_missing else range(at - distance, at), verdict)
    for name, n in after:
        getattr(history, name)(n)
    assert {it.verdict for it in audit(history.facts()).ranges if it.verdict in FINDINGS} <= {verdict}


@settings(max_examples=examples(80))
@given(_steps(CORRECT), st.integers(0, 40))
def test_O6_compaction_makes_no_finding(steps: list[tuple[str, int]], removed: int) -> None:
    """Compaction removes the first commits only."""
    history = _history([("read", 5), *steps])
    kept = history.commits[min(removed, len(history.commits) - 1) :]
    found = audit(Facts(P0, kept))
    assert not {it.verdict for it in found.ranges} & FINDINGS
    begin = kept[0].next_offset
    assert found.is_whole == (begin is not None and _begins_at_0(kept[0]))


def _begins_at_0(first: OffsetRecord) -> bool:
    mark = CommitMark.parse(first.metadata)
    return (first.next_offset if mark is None else mark.from_offset) == 0


@settings(max_examples=examples(80))
@given(_steps(ANY), st.integers(0, 40))
def test_O6_a_window_has_the_findings_since_its_begin(steps: list[tuple[str, int]], since: int) -> None:
    history = _history([("read", 5), *steps])
    whole = {(n, it) for n, it in _found(audit(history.facts())).items() if it in FINDINGS}
    window = {(n, it) for n, it in _found(audit(history.facts(), since)).items() if it in FINDINGS}
    assert window <= whole
    times = {
        n: it.time_ms
        for it in audit(history.facts()).ranges
        for n in range(it.offsets.next_offset, it.offsets.end_offset)
    }
    if since == 0:
        assert window == whole
    assert {n for n, _ in whole - window} <= {n for n in times if any(c.time_ms < since for c in history.commits)}


def _mark(end: int, began: int | None, time_ms: int = 0, **fields: object) -> OffsetRecord:
    return OffsetRecord(P0, end, CommitMark(False, from_offset=began, **fields).encode(), time_ms)  # type: ignore[arg-type]


def _verdicts(facts: Facts, since_ms: int = 0) -> list[tuple[int, int, str]]:
    return [(it.offsets.next_offset, it.offsets.end_offset, it.verdict.value) for it in audit(facts, since_ms).ranges]


def test_O6_a_commit_without_its_begin_is_unknown() -> None:
    assert _verdicts(Facts(P0, [_mark(5, 0), _mark(9, None)])) == [(0, 5, "once"), (5, 9, "unknown")]


def test_O6_other_consumers_are_unknown_on_request() -> None:
    commits = [_mark(5, 0), OffsetRecord(P0, 9, "", 1), _mark(12, 9, epoch=2)]
    assert _verdicts(Facts(P0, commits)) == [(0, 5, "once"), (5, 9, "missing"), (9, 12, "once")]
    assert _verdicts(Facts(P0, commits, has_other_consumers=True)) == [
        (0, 5, "once"),
        (5, 9, "unknown"),
        (9, 12, "once"),
    ]


def test_O6_a_read_before_the_evidence_is_unknown_without_a_reset() -> None:
    assert _verdicts(Facts(P0, [_mark(20, 10), _mark(12, 5, epoch=2)])) == [
        (5, 10, "unknown"),
        (10, 12, "double"),
        (12, 20, "once"),
    ]


def test_O6_a_deleted_offset_is_no_reason() -> None:
    deleted = OffsetRecord(P0, None, "", 1)
    found = audit(Facts(P0, [_mark(5, 0), deleted, _mark(12, 9, epoch=2)])).ranges
    assert [(it.verdict.value, it.detail) for it in found][1] == (
        "missing",
        "the committed offset was deleted, or has expired",
    )
    assert _verdicts(Facts(P0, [_mark(5, 0), deleted, _mark(9, 3, epoch=2)]))[1] == (3, 5, "double")


def test_O6_gaps_that_are_only_counted_make_a_jump_unknown() -> None:
    commits = [_mark(5, 0), _mark(12, 9, epoch=2)]
    assert _verdicts(Facts(P0, commits, gaps_not_kept=1))[1] == (5, 9, "unknown")
    assert _verdicts(Facts(P0, commits, has_unreadable_gaps=True))[1] == (5, 9, "unknown")


def test_O6_a_recreated_topic_begins_again() -> None:
    def of(topic: str, end: int, epoch: int) -> OffsetRecord:
        return _mark(end, 0, epoch=epoch, identity=TopicIdentity("c", topic))

    gap = Gap(2, 5, Cause.EXPIRED, 0, TopicIdentity("c", "t1"), TopicIdentity("c", "t1"))
    found = audit(Facts(P0, [of("t1", 50, 1), of("t2", 9, 2)], [gap]))
    assert [(it.offsets.end_offset, it.verdict) for it in found.ranges] == [(9, Verdict.ONCE)]
    assert found.is_whole


def test_O6_a_dead_letter_counts_once_for_each_batch() -> None:
    commits = [_mark(10, 0), _mark(20, 15, epoch=2)]
    letters = [Letter(3, "a"), Letter(3, "b"), Letter(4, "c"), Letter(4, "c"), Letter(12, "d"), Letter(90, "e")]
    found = audit(Facts(P0, commits, letters=letters))
    assert [(it.offsets.next_offset, it.offsets.end_offset, it.verdict.value) for it in found.ranges] == [
        (0, 4, "once"),
        (4, 5, "double"),
        (5, 10, "once"),
        (10, 12, "missing"),
        (12, 13, "once"),
        (13, 15, "missing"),
        (15, 20, "once"),
    ]
    assert found.letters == 5
    again = AppliedReset(1, "a1")
    repeated = [_mark(10, 0), _mark(10, 0, epoch=2, reset=again)]
    assert _verdicts(Facts(P0, repeated, letters=[Letter(4, "c")] * 2)) == [(0, 10, "repeated")]


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (None, [(0, 20, "once")]),
        (LedgerFact(20), [(0, 20, "once")]),
        (LedgerFact(25), [(0, 20, "once")]),
        (LedgerFact(12), [(0, 12, "once"), (12, 20, "missing")]),
        (LedgerFact(None), [(0, 20, "unknown")]),
    ],
)
def test_O6_committed_offsets_are_in_the_ledger(
    ledger: LedgerFact | None, expected: list[tuple[int, int, str]]
) -> None:
    assert _verdicts(Facts(P0, [_mark(20, 0)], ledger=ledger)) == expected


def test_O6_a_reset_that_no_owner_has_applied_to_the_ledger_is_no_finding() -> None:
    by_tool = OffsetRecord(P0, 40, ToolMark(AppliedReset(9, "a1")).encode(), 1)
    assert _verdicts(Facts(P0, [_mark(20, 0), by_tool], ledger=LedgerFact(20))) == [
        (0, 20, "once"),
        (20, 40, "skipped"),
    ]


@pytest.mark.parametrize(
    ("forms", "has_ledger", "expected"),
    [
        ([], False, Evidence.COMMITS_ONLY),
        ([""], True, Evidence.COMMITS_ONLY),
        (["cursors"], True, Evidence.COMMITS_ONLY),
        (["none -> kafka:a", "windows:m -> kafka:a"], False, Evidence.TRANSACTION),
        (["none -> postgres:a"], True, Evidence.LEDGER),
    ],
)
def test_O6_the_output_has_the_weakest_evidence(forms: list[str], has_ledger: bool, expected: Evidence) -> None:
    partition = PartitionAudit(P0, (), 0, 0, True, forms=frozenset(forms))
    assert GroupAudit("board", 0, (partition,), has_ledger).evidence is expected


def test_O6_a_window_before_the_evidence_is_not_complete() -> None:
    late = audit(Facts(P0, [_mark(20, 10, 5_000)]), 1_000)
    assert not GroupAudit("board", 1_000, (late,)).is_complete
    assert GroupAudit("board", 0, (late,)).is_complete
    assert GroupAudit("board", 6_000, (audit(Facts(P0, [_mark(20, 10, 5_000)]), 6_000),)).is_complete


# ---- the records of __consumer_offsets -------------------------------------------------------------------------------


KEY = b"\0\1\0\5board\0\7flights\0\0\0\3"


@pytest.mark.parametrize(
    "value",
    [
        b"\0\0" + (7).to_bytes(8, "big") + b"\0\2ok" + (9).to_bytes(8, "big"),
        b"\0\1" + (7).to_bytes(8, "big") + b"\0\2ok" + (9).to_bytes(8, "big") + b"\xff" * 8,
        b"\0\3" + (7).to_bytes(8, "big") + b"\0\0\0\1" + b"\0\3ok\0" + (9).to_bytes(8, "big"),
        b"\0\4" + (7).to_bytes(8, "big") + b"\0\0\0\1" + b"\3ok" + (9).to_bytes(8, "big") + b"\0",
    ],
)
def test_O6_all_versions_of_a_commit_are_read(value: bytes) -> None:
    assert KEY.startswith(key_prefix("board"))
    assert parse_offset_record(KEY, value, 1) == OffsetRecord(TopicPartition("flights", 3), 7, "ok", 9)
    assert parse_offset_record(KEY, None, 1) == OffsetRecord(TopicPartition("flights", 3), None, "", 1)


def test_O6_a_version_that_is_unknown_is_an_error() -> None:
    with pytest.raises(UnknownRecord, match="version 9"):
        parse_offset_record(KEY, b"\0\x09" + b"\0" * 40, 1)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_O6_damaged_records_are_one_kind_of_error(key: bytes, value: bytes | None) -> None:
    try:
        found = parse_offset_record(b"\0\1" + key, value, None)
    except UnknownRecord:
        return
    assert json.dumps(found.metadata)
