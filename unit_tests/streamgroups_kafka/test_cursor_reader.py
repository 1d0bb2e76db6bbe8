"""G4, G13, G16: what a cursor's reader makes of what librdkafka gives it; the consumer follows a script."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial

import pytest
from confluent_kafka import KafkaError

from streamgroups.errors import DataLoss, LoginRejected, NotAuthorized, ReadTimedOut
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import LogEnds, TopicPartition
from streamgroups.ports import Batch
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors import reader as cursor_reader
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.read_logs import ReadLogs
from streamgroups_kafka.cursors.reader import PartitionReaders, RecordReader
from unit_tests.scripted_consumer import ScriptedConsumer, end_of, failed_fetch, records

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Ends:
    """The beginning and end of partitions, and how often they were requested."""

    def __init__(self) -> None:
        self.of = {P0: 0, P1: 0}
        self.begin = {P0: 0, P1: 0}
        self.requested = 0
        self.epochs = {P0: 4, P1: 4}
        self.identity = TopicIdentity("c", "first")

    def log_ends(self, partitions: Collection[TopicPartition]) -> LogEnds:
        self.requested += 1
        epochs = {tp: self.epochs[tp] for tp in partitions if tp in self.epochs}
        return LogEnds({tp: self.of[tp] for tp in partitions}, epochs)

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        return dict.fromkeys(topics, self.identity)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.of[tp] for tp in partitions}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.begin[tp] for tp in partitions}


class Reading:
    """A reader, its consumer and its partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consumer, self.ends = ScriptedConsumer(), Ends()
        monkeypatch.setattr(cursor_reader, "Consumer", self.consumer)
        config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        #: The time in seconds, for the ids and the epochs of logs.
        self.now_s = 0.0
        ids = TopicIds(self.ends, lambda: int(self.now_s * 1000))  # type: ignore[arg-type]
        monkeypatch.setattr(cursor_reader, "ReadLogs", partial(ReadLogs, now_s=lambda: self.now_s))
        self.reader = RecordReader(config, group_id="g", client_id=None, offsets=self.ends, ids=ids)  # type: ignore[arg-type]

    def hold(self, tp: TopicPartition, begin: int, end: int) -> None:
        self.ends.begin[tp], self.ends.of[tp] = begin, end
        self.consumer.bounds[tp] = begin, end

    def read(self, positions: Mapping[TopicPartition, int], limit: int = 10) -> tuple[list[tuple[int, int]], Batch]:
        batch = self.reader.read(positions, limit)
        return [(m.partition, m.offset) for m in batch.messages], batch


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    reading = Reading(monkeypatch)
    reading.hold(P0, 0, 0)
    return reading


def test_G4_as_many_messages_as_the_limit_and_no_more(reading: Reading) -> None:
    reading.hold(P0, 0, 5)
    reading.consumer.fetched = deque(records(P0, *range(5)))
    found, batch = reading.read({P0: 0}, 3)
    assert (found, batch.reached) == ([(0, 0), (0, 1), (0, 2)], {P0: 3})
    assert reading.ends.requested == 0, "what is here is given out without a question"
    found, batch = reading.read({P0: 3}, 3)
    assert (found, batch.reached) == ([(0, 3), (0, 4)], {P0: 5})
    assert reading.consumer.names("incremental_assign") == ["incremental_assign"], "it is read on where it was left"


def test_G13_the_end_is_requested_and_gaps_are_skipped(reading: Reading) -> None:
    """Offsets 1 to 3 are a transaction's markers, or were compacted."""
    reading.hold(P0, 0, 4)
    reading.consumer.fetched = deque([*records(P0, 0), end_of(P0, 4)])
    found, batch = reading.read({P0: 0})
    assert (found, batch.reached) == ([(0, 0)], {P0: 4})


def test_G13_an_end_that_was_seen_before_records_came_in_ends_nothing(reading: Reading) -> None:
    reading.hold(P0, 0, 2)
    reading.consumer.fetched = deque([end_of(P0, 0)])
    reading.consumer.then(lambda: records(P0, 0)[0], lambda: records(P0, 1)[0])
    found, batch = reading.read({P0: 0})
    assert (found, batch.reached) == ([(0, 0), (0, 1)], {P0: 2})


def test_G4_records_of_other_partitions_do_not_delay_the_read_without_librdkafka(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka cannot parse the first record of the other partition, which stays at its position."""
    monkeypatch.setattr(cursor_reader, "_ENOUGH_S", 0.0)
    monkeypatch.setattr(cursor_reader, "_STALLED_S", 0.2)
    reading.hold(P0, 0, 10**9)
    reading.hold(P1, 0, 5)
    stalled: list[Mapping[TopicPartition, int]] = []
    monkeypatch.setattr(reading.reader, "_read_not_parsed", stalled.append)
    deadline_s, next_offset = time.monotonic() + 30, 0
    while not stalled and time.monotonic() < deadline_s:
        reading.consumer.fetched = deque(records(P0, next_offset))
        found, batch = reading.read({P0: next_offset, P1: 0})
        assert (found, batch.reached) == ([(0, next_offset)], {P0: next_offset + 1, P1: 0})
        next_offset += 1
    assert stalled == [{P1: 5}]


def test_at_the_end_there_is_nothing_and_nothing_is_waited_for(reading: Reading) -> None:
    reading.hold(P0, 0, 5)
    assert reading.read({P0: 5}) == ([], Batch((), {P0: 5}))


def test_G8_a_position_that_was_moved_drops_what_was_fetched_ahead(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.reader, "_max_bytes", 1)
    reading.hold(P0, 0, 9)
    reading.hold(P1, 0, 9)
    reading.consumer.fetched = deque([*records(P0, 0, 1), *records(P1, 0), *records(P0, 2)])
    assert reading.read({P0: 0, P1: 0})[0] == [(0, 0)]
    reading.consumer.fetched = deque(records(P0, 7))
    assert [reading.read({P0: 7, P1: 0})[0], reading.read({P0: 7, P1: 1})[0]] == [[(1, 0)], [(0, 7)]]
    assert reading.consumer.assigned == {P0: 7, P1: 0}


def test_G4_messages_are_in_the_order_of_partitions(reading: Reading) -> None:
    reading.hold(P0, 0, 2)
    reading.hold(P1, 0, 2)
    reading.consumer.fetched = deque([*records(P1, 0), *records(P0, 0), *records(P1, 1), *records(P0, 1)])
    assert reading.read({P0: 0, P1: 0})[0] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_G4_a_repeated_request_reads_the_same_messages_whatever_is_prefetched(reading: Reading) -> None:
    """The first request left messages of the second partition behind; they are not in the repeated one."""
    reading.hold(P0, 0, 9)
    reading.hold(P1, 0, 9)
    reading.consumer.fetched = deque([*records(P0, 0, 1, 2), *records(P1, 0, 1, 2)])
    once, first = reading.read({P0: 0, P1: 0}, 4)
    assert once == [(0, 0), (0, 1), (0, 2), (1, 0)]
    reading.consumer.then(
        lambda: records(P0, 0)[0],
        lambda: records(P0, 1)[0],
        lambda: records(P0, 2)[0],
        lambda: records(P1, 0)[0],
    )
    again = reading.reader.read({P0: 0, P1: 0}, 4, first.reached)
    assert ([(m.partition, m.offset) for m in again.messages], again.reached) == (once, first.reached)
    reading.consumer.fetched = deque(records(P0, 0, 1, 2))
    fewer = reading.reader.read({P0: 0, P1: 0}, 2, first.reached)
    assert [(m.partition, m.offset) for m in fewer.messages] == [(0, 0), (0, 1)]
    assert fewer.reached == {P0: 2, P1: 0}


def test_G13_a_repeated_request_ends_in_a_gap(reading: Reading) -> None:
    reading.hold(P0, 0, 9)
    reading.consumer.fetched = deque(records(P0, 0, 7, 8))
    batch = reading.reader.read({P0: 0}, 10, {P0: 5})
    assert ([m.offset for m in batch.messages], batch.reached) == ([0], {P0: 5})
    assert reading.read({P0: 5})[0] == [(0, 7), (0, 8)], "what was prefetched is not lost"


def test_what_no_position_is_of_is_passed_over(reading: Reading) -> None:
    reading.hold(P0, 0, 1)
    reading.consumer.fetched = deque([*records(P1, 7), *records(P0, 0)])
    assert reading.read({P0: 0})[0] == [(0, 0)]


def test_a_request_ends_with_about_as_much_as_one_fetch_brings(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.reader, "_max_bytes", 2)
    reading.hold(P0, 0, 5)
    reading.consumer.fetched = deque(records(P0, *range(5)))
    assert reading.read({P0: 0})[0] == [(0, 0), (0, 1)]
    assert reading.read({P0: 2})[0] == [(0, 2), (0, 3)]


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
@pytest.mark.parametrize(("begin", "end"), [(5, 9), (0, 2)], ids=["deleted", "truncated"])
def test_G16_a_position_that_is_gone_is_data_loss(reading: Reading, code: int, begin: int, end: int) -> None:
    reading.hold(P0, begin, end)
    reading.consumer.fetched = deque([failed_fetch(P0, code)])
    with pytest.raises(DataLoss, match=rf"flights-0 no longer has offset 3: it contains \[{begin}, {end}\)"):
        reading.read({P0: 3})


def test_G16_a_position_behind_the_end_is_data_loss_and_not_nothing(reading: Reading) -> None:
    reading.hold(P0, 0, 2)
    with pytest.raises(DataLoss, match="no longer has offset 3"):
        reading.read({P0: 3})


def test_a_position_that_a_former_leader_does_not_have_is_requested_again(reading: Reading) -> None:
    reading.hold(P0, 0, 4)
    reading.consumer.fetched = deque([failed_fetch(P0, KafkaError.OFFSET_OUT_OF_RANGE)])
    reading.consumer.then(lambda: records(P0, 3)[0])
    assert reading.read({P0: 3})[0] == [(0, 3)]
    assert reading.consumer.assigned == {P0: 3}


def test_what_does_not_pass_is_an_error_at_once(reading: Reading) -> None:
    reading.hold(P0, 0, 4)
    reading.consumer.fetched = deque([failed_fetch(P0, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(NotAuthorized, match="flights"):
        reading.read({P0: 3})


def test_a_record_that_does_not_arrive_is_an_error_with_its_cause(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_reader, "_RETRY_TIMEOUT_S", 0.0)
    reading.hold(P0, 0, 4)
    reading.consumer.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, "connection refused"))
    with pytest.raises(ReadTimedOut, match=r"flights-0 \(3 to 4\).*connection refused"):
        reading.read({P0: 3})


def test_a_login_that_is_rejected_is_not_waited_for(reading: Reading) -> None:
    reading.hold(P0, 0, 4)
    reading.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(LoginRejected):
        reading.read({P0: 3})


def test_a_login_that_is_rejected_once_fails_one_request(reading: Reading) -> None:
    """A new password or certificate can reach some brokers later than the clients."""
    reading.hold(P0, 0, 4)
    reading.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(LoginRejected):
        reading.read({P0: 3})
    reading.consumer.then(lambda: records(P0, 3)[0])
    assert reading.read({P0: 3})[0] == [(0, 3)]


def test_an_error_before_a_record_does_not_fail_later_requests(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading.hold(P0, 0, 2)
    reading.consumer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "rejected"))
    reading.consumer.fetched = deque(records(P0, 0))
    assert reading.read({P0: 0}, 1)[0] == [(0, 0)]
    reading.consumer.then(lambda: records(P0, 1)[0])
    assert reading.read({P0: 1})[0] == [(0, 1)]
    monkeypatch.setattr(cursor_reader, "_RETRY_TIMEOUT_S", 0.0)
    reading.hold(P0, 0, 4)
    with pytest.raises(ReadTimedOut) as timed_out:
        reading.read({P0: 3})
    assert "rejected" not in str(timed_out.value)


class TestPrefetchedMessages:
    """S7, S11: messages that are prefetched belong to the log of that time."""

    @pytest.fixture(autouse=True)
    def _two_of_four(self, reading: Reading) -> None:
        reading.hold(P0, 0, 4)
        reading.consumer.then(lambda: records(P0, 0)[0])
        assert reading.read({P0: 0}, 1)[0] == [(0, 0)]
        reading.consumer.fetched = deque(records(P0, 1, 2, 3))

    @staticmethod
    def is_dropped(reading: Reading) -> bool:
        n = len(reading.consumer.names("incremental_assign"))
        assert reading.read({P0: 1}, 1)[0] == [(0, 1)]
        return len(reading.consumer.names("incremental_assign")) > n

    def test_they_are_returned_while_the_leader_has_the_same_epoch(self, reading: Reading) -> None:
        reading.now_s = 60
        assert not self.is_dropped(reading)

    def test_they_are_dropped_after_an_election(self, reading: Reading) -> None:
        reading.now_s, reading.ends.epochs[P0] = 60, 5
        assert self.is_dropped(reading)

    def test_an_election_is_noticed_after_seconds(self, reading: Reading) -> None:
        reading.now_s, reading.ends.epochs[P0] = 4, 5
        assert not self.is_dropped(reading)

    def test_they_are_dropped_if_nothing_shows_that_the_log_is_the_same(self, reading: Reading) -> None:
        reading.now_s = 60
        del reading.ends.epochs[P0]
        assert self.is_dropped(reading)

    def test_they_are_dropped_when_the_topic_has_another_id(self, reading: Reading) -> None:
        reading.now_s, reading.ends.identity = 5, TopicIdentity("c", "second")
        assert self.is_dropped(reading)

    def test_other_partitions_keep_theirs(self, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading.reader, "_max_bytes", 1)
        reading.hold(P1, 0, 1)
        reading.consumer.fetched = deque([*records(P0, 1), *records(P1, 0), *records(P0, 2)])
        assert reading.read({P0: 1, P1: 0})[0] == [(0, 1)]
        reading.reader._logs.observe(reading.ends.log_ends([P1]))
        reading.now_s, reading.ends.epochs[P0] = 60, 5
        assert reading.read({P0: 2, P1: 0})[0] == [(1, 0)]
        reading.consumer.fetched = deque(records(P0, 2))
        assert reading.read({P0: 2, P1: 1})[0] == [(0, 2)]
        assert reading.consumer.assigned == {P0: 2, P1: 0}


def test_what_waited_behind_an_error_is_fetched_again(reading: Reading) -> None:
    """The messages behind it can be those of the log before a truncation."""
    reading.hold(P0, 0, 4)
    reading.consumer.fetched = deque([failed_fetch(P0, KafkaError._AUTO_OFFSET_RESET), *records(P0, 4, 5)])
    reading.consumer.then(lambda: records(P0, 3)[0])
    assert reading.read({P0: 3})[0] == [(0, 3)]


def test_it_is_closed_once(reading: Reading) -> None:
    reading.reader.close()
    reading.reader.close()
    assert reading.consumer.names("close") == ["close"]


def test_few_partitions_stay_open_those_that_were_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Reading] = []

    def new_reader() -> RecordReader:
        made.append(reading := Reading(monkeypatch))
        reading.ends.of = dict.fromkeys([TopicPartition("flights", p) for p in range(9)], 0)
        return reading.reader

    readers = PartitionReaders(new_reader)
    for p in (*range(8), 0, 8):
        assert readers.read(TopicPartition("flights", p), UNKNOWN, 0, 5) == ((), 0)
    assert [reading.consumer.closed for reading in made] == [False, True, *[False] * 7]
    readers.close()
    assert all(reading.consumer.closed for reading in made)


def test_a_topic_of_the_same_name_has_a_reader_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prefetched messages of a reader are those of the topic that was deleted."""
    made: list[Reading] = []

    def new_reader() -> RecordReader:
        made.append(reading := Reading(monkeypatch))
        reading.ends.of = {TopicPartition("flights", 0): 0}
        return reading.reader

    readers = PartitionReaders(new_reader)
    for topic_id in ("a", "b", "a"):
        assert readers.read(TopicPartition("flights", 0), TopicIdentity("c", topic_id), 0, 5) == ((), 0)
    assert len(made) == 2
    readers.close()
