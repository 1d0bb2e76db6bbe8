"""W10, W14: the punctuations of the time source, and its offsets."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.observations import observations
from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups.event_time.source_time import SourceTime, add_partitions, observe
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.time_entries import decode_partition, encode_partition
from streamgroups.event_time.watermark import NOT_YET, At, Watermark
from streamgroups.fakes import FakeClock
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge import rpc
from streamgroups_spark.bridge.punctuation_options import options_of
from streamgroups_spark.bridge.rpc import SessionServer
from streamgroups_spark.event_time.punctuation_source import TimeDataSource, TimeReader
from streamgroups_spark.messages.time import ClusterRequest, StreamTime, TimeReply, TimeRequest
from streamgroups_spark.source.observed_times import seen_in
from streamgroups_testkit.waits import wait_until
from unit_tests.extreme_times import LIMITS_MS

SETTINGS = TimeSettings(Generation())
P0, START_MS = TopicPartition("trades", 0), 1_732_334_400_000


class Stream:
    """A source with this time. Its tasks report under the name of its group."""

    def __init__(
        self,
        group_id: str,
        watermark: Watermark = NOT_YET,
        *,
        import_from: str | None = None,
        generates: bool = True,
        cluster_id: str = "first",
    ) -> None:
        self.group_id, self.watermark, self.cluster_id = group_id, watermark, cluster_id
        self.reported_as = group_id
        self.settings = TimeSettings(Generation() if generates else None, import_from)
        self.requested: list[TimeRequest] = []
        #: A process that is stopped, or waits for a broker, does not answer until this is set.
        self.responds = threading.Event()
        self.responds.set()

    def answer(self, question: Any) -> TimeReply | str | None:
        self.responds.wait(30)
        if isinstance(question, ClusterRequest):
            is_meant = question.reported_as in (self.reported_as, f"{self.reported_as}@{self.cluster_id}")
            return self.cluster_id if is_meant else None
        if not isinstance(question, TimeRequest):
            return None
        if (question.group_id, question.cluster_id) != (self.group_id, self.cluster_id):
            return None
        self.requested.append(question)
        return TimeReply("alice", SourceTime(self.watermark), self.settings, 0)


@contextmanager
def session(*streams: Stream) -> Iterator[str]:
    name = uuid.uuid4().hex[:8]
    with ExitStack() as stack:
        for i, stream in enumerate(streams):
            stack.callback(SessionServer(name, str(i), stream.answer).close)
        yield name


def reader(session: str, group_id: str, reported_as: str | None = None, **settings: str) -> TimeReader:
    given = settings or {"watermarkDelay": "0s"}
    options = options_of(group_id, given, reported_as=reported_as or group_id, read_column=None)
    source = type("Source", (TimeDataSource,), {"session": session})(options)
    made = source.simpleStreamReader(source.schema())
    made.prepareForTriggerAvailableNow()
    return made


def times_ms(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [it.value // 1_000 for batch in batches for it in batch.column("time")]


def through_a_checkpoint(offset: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))


def test_W14_spark_receives_a_millisecond_less_because_records_at_its_watermark_are_late() -> None:
    with session(trades := Stream("trades")) as name:
        source = reader(name, "trades")
        start = source.initialOffset()
        assert source.read(start)[1] == start, "nothing is asserted"
        trades.watermark = At(5_000)
        rows, end = source.read(start)
        assert times_ms(rows) == [4_999]
        assert source.read(through_a_checkpoint(end))[1] == end, "nothing is new"
        assert times_ms(source.readBetweenOffsets(start, through_a_checkpoint(end))) == [4_999]


def test_W14_spark_subtracts_the_delay_so_that_its_dedup_remembers_a_record_for_that_long() -> None:
    def emitted_ms(**settings: str) -> list[int]:
        with session(Stream("trades", At(5_000))) as name:
            source = reader(name, "trades", **settings)
            return times_ms(source.read(source.initialOffset())[0])

    assert emitted_ms(watermarkDelay="10s") == [14_999]
    assert emitted_ms(watermarkDelay="-10s") == [4_999], "Spark has no negative delay"
    assert emitted_ms(importFrom="others") == [4_999]


@pytest.mark.parametrize("name", LIMITS_MS)
@pytest.mark.parametrize("delay", ["10s", "-1ms", "100000 days", "-100000 days"])
def test_the_watermark_of_any_event_time_can_be_read_from_a_checkpoint(delay: str, name: str) -> None:
    both = pa.array([START_MS, LIMITS_MS[name]], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    settings = time_settings({}, {"watermarkDelay": delay})
    for times in (both, both.slice(1)):
        place = {"topic": ["trades"] * len(times), "partition": [0] * len(times), "offset": [5] * len(times)}
        records = pa.record_batch({**place, "at": times.cast(pa.timestamp("us", "UTC"))})
        read = observations([OffsetRange(P0, 5, 9)], seen_in(records, "at"))
        time = observe(add_partitions(SourceTime(), {P0: None}), read, settings, START_MS)
        with session(Stream("trades", time.watermark)) as name_:
            source = reader(name_, "trades", watermarkDelay=delay)
            rows, end = source.read(source.initialOffset())
            assert source.read(through_a_checkpoint(end))[1] == end
            again = source.readBetweenOffsets(source.initialOffset(), through_a_checkpoint(end))
            assert times_ms(again) == times_ms(rows)
        entry = through_a_checkpoint(dict(encode_partition(time.partitions[P0])))
        assert decode_partition(entry) == time.partitions[P0]


def test_a_restarted_query_continues_at_its_position() -> None:
    with session(trades := Stream("trades", At(5_000))) as name:
        _, end = reader(name, "trades").read(reader(name, "trades").initialOffset())
        trades.watermark = At(3_000)
        again = reader(name, "trades")
        assert again.read(end)[1] == end
        assert trades.requested[-1] == TimeRequest("trades", At(5_000), SETTINGS, "first")


def test_W10_imported_time_drives_a_stream_that_has_come_less_far() -> None:
    with session(prices := Stream("prices", At(1_000)), trades := Stream("trades", At(5_000))) as name:
        source = reader(name, "prices", importFrom="trades")
        rows, end = source.read(source.initialOffset())
        assert times_ms(rows) == [4_999]
        assert prices.requested[-1].asserted == At(5_000)
        prices.watermark = At(7_000)
        assert times_ms(source.read(end)[0]) == [6_999]
        assert trades.requested[-1].asserted == NOT_YET


@pytest.mark.parametrize("times_of_both_ms", [(2_000, 5_000), (5_000, 2_000)])
def test_W10_of_several_imported_times_the_latest_counts(times_of_both_ms: tuple[int, int]) -> None:
    first_ms, second_ms = times_of_both_ms
    trades, orders = Stream("trades", At(first_ms), import_from="orders"), Stream("orders", At(second_ms))
    with session(Stream("prices"), trades, orders) as name:
        source = reader(name, "prices", importFrom="trades")
        assert times_ms(source.read(source.initialOffset())[0]) == [4_999]


def test_W10_a_group_of_the_same_name_in_another_cluster_is_not_followed() -> None:
    prices = Stream("prices", At(1_000)), Stream("prices", At(400), cluster_id="second")
    trades = Stream("trades", At(9_000)), Stream("trades", At(3_000), cluster_id="second")
    with session(*prices, *trades) as name:
        first = reader(name, "prices", "prices@first", importFrom="trades")
        second = reader(name, "prices", "prices@second", importFrom="trades")
        assert times_ms(first.read(first.initialOffset())[0]) == [8_999]
        assert times_ms(second.read(second.initialOffset())[0]) == [2_999]


def test_W10_only_running_streams_count_with_their_current_settings() -> None:
    """A query that has ended, and imported from another group, changes nothing."""
    prices, trades, orders = Stream("prices"), Stream("trades", import_from="orders"), Stream("orders", At(5_000))
    with session(prices, orders) as name:
        source = reader(name, "prices", importFrom="trades")
        with ExitStack() as stack:
            stack.callback(SessionServer(name, "trades", trades.answer).close)
            rows, end = source.read(source.initialOffset())
            assert times_ms(rows) == [4_999]
        restarted = Stream("trades", At(6_000))
        orders.watermark = At(9_000)
        with ExitStack() as stack:
            stack.callback(SessionServer(name, "trades", restarted.answer).close)
            assert times_ms(source.read(end)[0]) == [5_999]


def test_W10_running_streams_that_only_import_from_each_other_are_rejected() -> None:
    prices = Stream("prices", import_from="trades", generates=False)
    trades = Stream("trades", import_from="prices", generates=False)
    with session(prices) as name:
        source = reader(name, "prices", importFrom="trades")
        assert source.read(source.initialOffset())[1] == source.initialOffset()
    with session(prices, trades) as name:
        source = reader(name, "prices", importFrom="trades")
        with pytest.raises(InvalidOption, match="imports event time along prices <- trades"):
            source.read(source.initialOffset())


def test_of_several_members_the_one_that_asserts_least_counts() -> None:
    with session(Stream("trades", At(5_000)), Stream("trades", At(3_000))) as name:
        source = reader(name, "trades")
        assert times_ms(source.read(source.initialOffset())[0]) == [2_999]


def test_W2_the_source_of_the_next_run_has_another_address() -> None:
    """The watermark of a stream whose source has ended waits for the next source, and not for good."""
    first, ahead = Stream("trades", At(1_000)), Stream("trades", At(9_000))
    with session(ahead) as name:
        # The other stream of the group is another DataFrame.
        ahead.reported_as = "trades@other"
        source = reader(name, "trades")
        with closing(SessionServer(name, "run-1", first.answer)):
            rows, end = source.read(source.initialOffset())
            assert times_ms(rows) == [999]
        assert source.read(end)[1] == end, "the partitions of the source are unknown"
        first.watermark = At(2_000)
        with closing(SessionServer(name, "run-2", first.answer)):
            found = list[int]()
            wait_until(
                lambda: found.extend(times_ms(source.read(end)[0])) or found, "the watermark of the next run", 30
            )
            assert found == [1_999]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_RETRY_TIMEOUT_S", 1.5)


@pytest.mark.usefixtures("_impatient")
class TestAProcessThatDoesNotRespond:
    """Its partitions count: the minimum over the other processes of the session can be too high."""

    @pytest.mark.parametrize("silent", [0, 1], ids=["its own source", "another query of the group"])
    def test_W2_the_watermark_does_not_advance_without_a_source_of_the_group(
        self, silent: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        streams = Stream("trades", At(1_000)), Stream("trades", At(9_000_000))
        with session(*streams) as name:
            source = reader(name, "trades")
            end = source.read(source.initialOffset())[1]
            slow, fast = streams[silent], streams[1 - silent]
            slow.watermark, fast.watermark = At(2_000), At(9_000_000)
            slow.responds.clear()
            for _ in range(2):
                assert source.read(end)[1] == end
            assert caplog.text.count("The watermark of group 'trades' does not advance until") == 1
            assert f"until the processes {silent} of this Spark session respond" in caplog.text
            slow.responds.set()
            assert times_ms(source.read(end)[0]) == [1_999]
            assert all(it.asserted != At(9_000_000) for it in fast.requested), "no source advances to it"

    def test_W2_a_process_of_another_group_does_not_hold_the_watermark_back(self) -> None:
        trades, prices = Stream("trades", At(1_000)), Stream("prices", At(1))
        with session(trades, prices) as name:
            source = reader(name, "trades")
            end = source.read(source.initialOffset())[1]
            prices.responds.clear()
            trades.watermark = At(2_000)
            assert times_ms(source.read(end)[0]) == [1_999]
            prices.responds.set()

    def test_W2_a_process_that_never_responded_can_read_for_the_group(self) -> None:
        trades, unknown = Stream("trades", At(1_000)), Stream("trades", At(1))
        unknown.responds.clear()
        with session(trades, unknown) as name:
            source = reader(name, "trades")
            assert source.read(source.initialOffset())[1] == source.initialOffset()
            unknown.responds.set()

    def test_W10_an_imported_watermark_does_not_advance_without_a_source_of_its_group(self) -> None:
        """The watermark of the own records does (no batch waits for the other group)."""
        prices = Stream("prices", At(1_000))
        trades = Stream("trades", At(500)), Stream("trades", At(9_000_000))
        with session(prices, *trades) as name:
            source = reader(name, "prices", importFrom="trades")
            rows, end = source.read(source.initialOffset())
            assert times_ms(rows) == [999]
            trades[0].responds.clear()
            prices.watermark = At(3_000)
            assert times_ms(source.read(end)[0]) == [2_999]
            trades[0].responds.set()


def test_W2_the_watermark_does_not_advance_after_the_end_of_its_own_source() -> None:
    """Its process was killed, and Spark has not noticed it yet. The other query can be ahead of its partitions."""
    own, other = Stream("trades", At(1_000)), Stream("trades", At(9_000_000))
    with session() as name, ExitStack() as stack:
        first = SessionServer(name, "own", own.answer)
        source = reader(name, "trades")
        end = source.read(source.initialOffset())[1]
        stack.callback(SessionServer(name, "other", other.answer).close)
        assert source.read(end)[1] == end
        first.close()
        assert source.read(end)[1] == end


def test_no_query_is_running_yet() -> None:
    with session() as name:
        source = reader(name, "trades")
        assert source.read(source.initialOffset())[1] == source.initialOffset()


def test_it_does_not_poll_every_time_when_there_is_nothing() -> None:
    clock = FakeClock(100_000)
    with session(trades := Stream("trades")) as name:
        source = TimeReader(name, StreamTime("trades", SETTINGS, "trades", None), lambda: clock() / 1_000)
        for _ in range(4):
            source.read(source.initialOffset())
            clock.advance(15)
        assert len(trades.requested) == 2


def test_the_column_may_be_null_or_spark_leaves_out_the_filter() -> None:
    assert TimeDataSource({}).schema()["time"].nullable
