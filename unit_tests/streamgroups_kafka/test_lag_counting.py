"""G13, O3: the lag is counted by the headers of batches, on a log of a fake broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.groups.lag import CountedLag
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.admin import lag_counting
from streamgroups_kafka.admin.lag_counting import AbortedTransaction, CountedBatches, count_records

P0 = TopicPartition("flights", 0)
PLENTY = 1 << 30


def batch(
    base: int,
    count: int,
    *,
    last: int | None = None,
    producer: int | None = None,
    control: bool = False,
    magic: int = 2,
    body: int = 10,
) -> bytes:
    """A batch with its header; the rest is not read."""
    last = base + count - 1 if last is None else last
    attributes = (0 if producer is None else 0x10) | (0x20 if control else 0)
    of = -1 if producer is None else producer
    head = struct.pack(">qiibIhiqqqhii", base, 49 + body, 0, magic, 0, attributes, last - base, 0, 0, of, 0, 0, count)
    return head + bytes(body)


@dataclass
class Log:
    """One partition: its batches, and whose transactions are open or were aborted."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[AbortedTransaction, int]] = field(default_factory=list)
    #: Each record, and whose it is.
    records: dict[int, int | None] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def write(
        self, count: int, producer: int | None = None, *, removed: frozenset[int] = frozenset(), body: int = 10
    ) -> None:
        """A batch; some of its records were removed by compaction, by their places in it."""
        kept = [self.end + i for i in range(count) if i not in removed]
        if kept:
            self.batches.append(
                (
                    self.end,
                    self.end + count - 1,
                    batch(self.end, len(kept), last=self.end + count - 1, producer=producer, body=body),
                )
            )
        if producer is not None:
            self.open.setdefault(producer, self.end)
        self.records |= dict.fromkeys(kept, producer)
        self.end += count

    def mark(self, producer: int, *, commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is None:
            return
        if not commit:
            self.aborted.append((AbortedTransaction(producer, first), self.end))
            self.gone |= {o for o, of in self.records.items() if of == producer and o >= first}
        self.batches.append((self.end, self.end, batch(self.end, 1, producer=producer, control=True)))
        self.end += 1

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def sent(self, at: int, *, committed: bool) -> list[bytes]:
        until = self.stable if committed else self.end
        return [data for base, last, data in self.batches if last >= at and base < until]

    def truth(self, at: int) -> CountedLag:
        """What there is for a reader of committed records, and behind its reach."""
        records = sum(at <= o < self.stable and o not in self.gone for o in self.records)
        return CountedLag(records, sum(o >= max(self.stable, at) for o in self.records))


class Broker:
    """Answers Fetch requests: whole batches only, the first of them whatever its size."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        self.logs, self.requests, self.bytes_sent = logs, 0, 0
        self.errors: dict[TopicPartition, int] = {}
        #: The error of the next whole responses.
        self.rejects = 0

    async def send_all(self, requests: Mapping[int, Any], timeout_s: float | None = None) -> dict[int, Any]:
        self.requests += len(requests)
        return {node: self._answer(request) for node, request in requests.items()}

    def _answer(self, request: Any) -> Any:
        if self.rejects:
            return SimpleNamespace(error_code=self.rejects, responses=[])
        left, topics = request.max_bytes, []
        for t in request.topics:
            partitions = []
            for p in t.partitions:
                tp = TopicPartition(t.topic, p.partition)
                log, committed = self.logs[tp], request.isolation_level == 1
                data = b""
                for one in log.sent(p.fetch_offset, committed=committed):
                    is_first = left == request.max_bytes
                    if not is_first and (len(data) + len(one) > p.partition_max_bytes or len(one) > left):
                        break
                    data, left = data + one, left - len(one)
                aborted = [a for a, end in log.aborted if end >= p.fetch_offset] if committed else None
                self.bytes_sent += len(data)
                partitions.append(
                    SimpleNamespace(
                        partition_index=p.partition,
                        error_code=self.errors.get(tp, 0),
                        last_stable_offset=log.stable,
                        aborted_transactions=aborted,
                        records=data or None,
                    )
                )
            topics.append(SimpleNamespace(topic=t.topic, partitions=partitions))
        return SimpleNamespace(error_code=0, responses=topics)


def counted(broker: Broker, *ranges: OffsetRange, limit_bytes: int = PLENTY) -> dict[TopicPartition, CountedLag]:
    leaders = dict.fromkeys(broker.logs, 1)
    return asyncio.run(lag_counting.count_lag(broker, leaders, ranges, limit_bytes))  # type: ignore[arg-type]


# ---- one log, whatever is in it ----------------------------------------------------------------------------------------


def test_G13_markers_gaps_and_aborted_records_in_the_middle_are_no_records() -> None:
    log = Log()
    log.write(3)
    log.write(2, producer=1)
    log.write(4, producer=2)
    log.mark(1, commit=True)
    log.mark(2, commit=False)
    log.write(5, removed=frozenset({0, 1, 4}))
    log.write(1)
    assert (log.end, log.truth(0)) == (17, CountedLag(3 + 2 + 2 + 1))
    assert counted(Broker({P0: log}), OffsetRange(P0, 0, 17)) == {P0: CountedLag(8)}
    assert counted(Broker({P0: log}), OffsetRange(P0, 1, 17)) == {P0: CountedLag(7)}


def test_O3_records_of_an_open_transaction_and_behind_it_are_distinguished() -> None:
    log = Log()
    log.write(2)
    log.write(3, producer=1)
    log.write(4)
    assert counted(Broker({P0: log}), OffsetRange(P0, 0, 9)) == {P0: CountedLag(2, open=7)}
    assert counted(Broker({P0: log}), OffsetRange(P0, 6, 9)) == {P0: CountedLag(0, open=3)}, "it reads what is open"
    log.mark(1, commit=True)
    assert counted(Broker({P0: log}), OffsetRange(P0, 0, 10)) == {P0: CountedLag(9)}


def test_G13_where_compaction_has_removed_the_last_records_the_count_comes_to_an_end() -> None:
    log = Log()
    log.write(2)
    log.write(50, removed=frozenset(range(50)))
    assert counted(Broker({P0: log}), OffsetRange(P0, 0, 52)) == {P0: CountedLag(2)}


def test_in_a_batch_with_gaps_the_side_of_records_is_unknown() -> None:
    log = Log()
    log.write(10, removed=frozenset({3, 4}))
    log.write(1)
    assert counted(Broker({P0: log}), OffsetRange(P0, 8, 11)) == {P0: CountedLag(3, is_exact=False)}


def test_batches_of_any_size_get_through_and_old_formats_are_upper_bounds() -> None:
    log = Log()
    for _ in range(3):
        log.write(1, body=1 << 20)
    other = TopicPartition("flights", 1)
    found = counted(Broker({P0: log, other: log}), OffsetRange(P0, 0, 3), OffsetRange(other, 0, 3))
    assert found == {P0: CountedLag(3), other: CountedLag(3)}
    old = batch(4, 0, last=4, magic=1)
    assert count_records(old, 2, 9) == CountedBatches(5, 3, is_exact=False)


@pytest.mark.parametrize("data", [bytes(61), batch(0, 3)[:-1], struct.pack(">qi", 0, -5) + bytes(60), b"\xff" * 200])
def test_what_is_no_whole_batch_counts_for_nothing(data: bytes) -> None:
    assert count_records(data, 0, 10) == CountedBatches(0, 0)


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_a_header_cannot_count_more_than_it_has_offsets(count: int) -> None:
    data = batch(0, count, last=4)
    assert 0 <= count_records(data, 0, 10).records <= 5


# ---- many of them, and limits ------------------------------------------------------------------------------------------


def test_O3_five_thousand_partitions_that_are_behind_by_a_marker_take_one_request() -> None:
    log = Log()
    log.write(1, producer=1)
    log.mark(1, commit=True)
    tps = [TopicPartition("flights", p) for p in range(5_000)]
    broker = Broker(dict.fromkeys(tps, log))
    found = counted(broker, *(OffsetRange(tp, 1, 2) for tp in tps), limit_bytes=1 << 20)
    assert set(found.values()) == {CountedLag(0)}
    assert (len(found), broker.requests) == (5_000, 1)


def test_what_the_limit_leaves_out_is_an_upper_bound_and_the_small_ones_come_first() -> None:
    small, large = Log(), Log()
    for log, batches in ((small, 2), (large, 200)):
        for _ in range(batches):
            log.write(3, producer=1, body=1_000)
            log.mark(1, commit=True)
    other = TopicPartition("flights", 1)
    broker = Broker({P0: large, other: small})
    found = counted(broker, OffsetRange(P0, 0, 800), OffsetRange(other, 0, 8), limit_bytes=20_000)
    assert found[other] == CountedLag(6)
    assert not found[P0].is_exact
    assert 600 < found[P0].records < 800, "what was read is counted exactly"
    assert broker.bytes_sent < 25_000


def test_a_partition_that_must_not_be_read_spoils_no_other() -> None:
    log, other = Log(), TopicPartition("flights", 1)
    log.write(3)
    broker = Broker({P0: log, other: log})
    broker.errors[P0] = 29
    assert counted(broker, OffsetRange(P0, 0, 3), OffsetRange(other, 0, 3)) == {other: CountedLag(3)}


def test_G17_a_response_with_an_error_as_a_whole_is_not_requested_again() -> None:
    log = Log()
    log.write(3)
    broker = Broker({P0: log})
    broker.rejects = 56
    assert (counted(broker, OffsetRange(P0, 0, 3)), broker.requests) == ({}, 1)


def test_no_time_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_counting.time, "monotonic", iter(range(0, 1_000, 10)).__next__)
    broker = Broker({P0: Log()})
    assert (counted(broker, OffsetRange(P0, 0, 3)), broker.requests) == ({}, 0)


# ---- every log ---------------------------------------------------------------------------------------------------------

_STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 6), st.none() | st.integers(0, 2), st.frozensets(st.integers(0, 5))),
    st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2), st.none(), st.just(frozenset())),
)


@example(
    steps=[("write", 2, 0, frozenset()), ("write", 1, 1, frozenset()), ("abort", 0, None, frozenset())],
    start=1,
    limit=PLENTY,
)
@example(
    steps=[("write", 3, 0, frozenset()), ("abort", 0, None, frozenset()), ("write", 2, 0, frozenset())],
    start=0,
    limit=PLENTY,
)
@given(steps=st.lists(_STEPS, max_size=15), start=st.integers(0, 40), limit=st.integers(1, 900) | st.just(PLENTY))
def test_O3_a_count_is_marked_as_exact_or_as_an_upper_bound(
    steps: list[tuple[str, int, int | None, frozenset[int]]], start: int, limit: int
) -> None:
    log = Log()
    for what, n, producer, removed in steps:
        if what == "write":
            log.write(n, producer, removed=removed)
        else:
            log.mark(n, commit=what == "commit")
    start = min(start, log.end)
    found = counted(Broker({P0: log}), OffsetRange(P0, start, log.end), limit_bytes=limit).get(P0)
    truth = log.truth(start)
    assert found is not None
    if found.is_exact:
        assert found == truth
    else:
        assert found.records >= truth.records
        assert found.open >= truth.open
        # Only two things prevent an exact count.
        assert limit < PLENTY or any(removed for _, _, _, removed in steps)
