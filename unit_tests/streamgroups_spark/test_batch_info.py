"""X1, X2: what a sink finds out about its batch, and which queries it rejects."""

from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.errors import FencedBatch, FencedMember, InvalidOption, SinkUnreachable
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_spark.bridge import checkpoint_log
from streamgroups_spark.bridge.rpc import SessionServer
from streamgroups_spark.messages.batch import BatchFacts, BatchRequest
from streamgroups_spark.sinks import batch_info as module
from streamgroups_spark.sinks.batch_info import BatchInfo, batch_info, logged_batch

RANGES = tuple(OffsetRange(TopicPartition("flights", p), 10, 20) for p in range(2))
END = encode(BatchOffset(3, RANGES))
#: Where a source of time ends.
TIME = {"version": 1, "kind": "streamgroups-time", "group": "board", "watermark": 5}
FACTS = BatchFacts(
    end=END,
    group_id="board",
    member="one",
    ranges=RANGES,
    held=RANGES,
    written=(),
    group_metadata=ConsumerGroupMetadata("board", 7, "one-1"),
    mode=MembershipMode.SHARED,
    joins=True,
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A session in a directory of its own (not ``tmp_path``, whose name may be long), whose sources have no time."""
    monkeypatch.setattr(module, "_RETRY_TIMEOUT_S", 0.2)
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield uuid.uuid4().hex[:12]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., str]:
    """Makes a checkpoint whose batches end so."""

    def make(*ends: Any, state: bool = False) -> str:
        directory = tmp_path / uuid.uuid4().hex
        (directory / "offsets").mkdir(parents=True)
        (directory / "metadata").write_text('{"id":"5f2c"}')
        for i, end in enumerate(ends):
            lines = [
                "v1",
                '{"batchWatermarkMs":0,"batchTimestampMs":7}',
                *("-" if e is None else json.dumps(e) for e in end),
            ]
            (directory / "offsets" / str(i)).write_text("\n".join(lines))
        if state:
            (directory / "state").mkdir()
        return str(directory)

    return make


def info(location: str, session: str, batch_id: int | None = None, *, confirmed: bool = False) -> BatchInfo:
    """The facts about a batch of a checkpoint."""
    return batch_info(logged_batch(location, batch_id), session, confirmed=confirmed)


@contextmanager
def source(session: str, facts: BatchFacts, end: Any = END) -> Iterator[None]:
    answering = SessionServer(
        session, f"{id(facts):x}", lambda q: facts if isinstance(q, BatchRequest) and q.end == end else None
    )
    with closing(answering):
        yield


def test_the_newest_batch_and_one_by_its_number(session: str, checkpoint: Callable[..., str]) -> None:
    location = checkpoint([{"version": 2, "n": 2, "ranges": {}, "resting": {}}], [END])
    with source(session, FACTS):
        for seen in (info(location, session), info(location, session, 1)):
            assert (seen.sources, seen.batch_id, seen.ranges, seen.is_written) == ((FACTS,), 1, RANGES, False)
        with pytest.raises(FencedMember, match=r"No source in this session runs batch 0"):
            info(location, session, 0)


def test_a_query_that_has_not_begun_reads_nothing(session: str, checkpoint: Callable[..., str]) -> None:
    assert info(checkpoint(), session).sources == ()


def test_a_query_that_warms_up_is_no_member_yet(session: str, checkpoint: Callable[..., str]) -> None:
    with source(session, replace(FACTS, ranges=(), held=(), group_metadata=None)):
        seen = info(checkpoint([END]), session)
    assert (seen.ranges, seen.is_written) == ((), False)


def test_several_sources_and_one_that_has_nothing_yet(session: str, checkpoint: Callable[..., str]) -> None:
    other = encode(BatchOffset(9, (OffsetRange(TopicPartition("gates", 0), 0, 1),)))
    gates = replace(FACTS, group_id="gates", ranges=(OffsetRange(TopicPartition("gates", 0), 0, 1),), held=())
    gates = replace(gates, held=gates.ranges)
    with source(session, FACTS), source(session, gates, other):
        seen = info(checkpoint([END, None, other]), session)
    assert seen.ranges == (*RANGES, *gates.ranges)


def test_X1_a_source_of_two_branches_of_a_union_counts_once(session: str, checkpoint: Callable[..., str]) -> None:
    with source(session, FACTS):
        seen = info(checkpoint([END, END]), session)
    assert (seen.sources, seen.reads) == ((FACTS,), {FACTS.group_id: RANGES})


def test_X7_only_a_confirmed_member_has_a_confirmed_batch(session: str, checkpoint: Callable[..., str]) -> None:
    def answer(question: Any) -> BatchFacts | None:
        if not isinstance(question, BatchRequest):
            return None
        return replace(FACTS, group_metadata=None) if question.confirmed else FACTS

    location = checkpoint([END])
    with closing(SessionServer(session, "0123", answer)):
        assert info(location, session).ranges == RANGES
        with pytest.raises(FencedMember, match="has not confirmed member 'one'"):
            info(location, session, confirmed=True)


def test_X2_what_is_written_already(session: str, checkpoint: Callable[..., str]) -> None:
    with source(session, replace(FACTS, written=RANGES)):
        assert info(checkpoint([END]), session).is_written
    with source(session, replace(FACTS, written=RANGES[:1])):
        seen = info(checkpoint([END]), session)
    with pytest.raises(FencedBatch, match=r"partly written: flights-0\[10,20\), but not flights-1\[10,20\)"):
        _ = seen.is_written


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        (replace(FACTS, group_metadata=None), FencedMember, r"has not confirmed member 'one'.*not written"),
        (replace(FACTS, joins=False, group_metadata=None), InvalidOption, r"uses 'assign'.*Use 'subscribe'"),
        # It has left its group, which is more precise than a missing confirmation of the group.
        (replace(FACTS, held=(), group_metadata=None), FencedBatch, r"revoked flights-0.* from 'one'.*leaseTimeout"),
        (replace(FACTS, held=RANGES[:1]), FencedBatch, r"revoked flights-1\[10,20\) from 'one'"),
    ],
)
def test_X1_what_cannot_be_exactly_once(
    session: str, checkpoint: Callable[..., str], facts: BatchFacts, error: type[Exception], message: str
) -> None:
    with source(session, facts), pytest.raises(error, match=message):
        info(checkpoint([END]), session)


def test_X1_a_source_that_is_not_ours_is_named(session: str, checkpoint: Callable[..., str]) -> None:
    with source(session, FACTS), pytest.raises(InvalidOption, match=r"another format \(it ends at \{'flights'"):
        info(checkpoint([END, {"flights": {"0": 5}}]), session)


def test_a_checkpoint_that_cannot_be_read(session: str, tmp_path: Path, checkpoint: Callable[..., str]) -> None:
    with pytest.raises(SinkUnreachable, match=r"cannot be read"):
        info(str(tmp_path / "nowhere"), session)
    location = checkpoint([END])
    (Path(location) / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7}\n{not json')
    with pytest.raises(SinkUnreachable, match=r"cannot be read"):
        info(location, session)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and directories that were read of checkpoints."""
    names: list[str] = []
    opened = checkpoint_log.open_location

    class Files:
        def __init__(self, files: Any) -> None:
            self._files = files

        def __getattr__(self, call: str) -> Callable[[Any], Any]:
            def counted(what: Any) -> Any:
                names.append(Path(getattr(what, "base_dir", what)).name)
                return getattr(self._files, call)(what)

            return counted

    def open_location(location: str) -> tuple[Any, str]:
        files, path = opened(location)
        return Files(files), path

    monkeypatch.setattr(checkpoint_log, "open_location", open_location)
    return names


def test_X1_a_batch_reads_its_entry_and_the_one_before_it(checkpoint: Callable[..., str], reads: list[str]) -> None:
    """The documented numbers: on an object store each read is a request."""
    location = checkpoint([encode(BatchOffset(2, RANGES))], [END], [END], state=True)
    logged_batch(location, 1)
    assert reads == ["1", "0"]
    reads.clear()
    assert logged_batch(location).no_data_batch is not None
    assert reads == ["offsets", "2", "1", "state", "metadata"]


class TestNoDataBatches:
    """X2: batches in which sources advance by time only."""

    def test_need_no_source_to_answer(self, session: str, checkpoint: Callable[..., str]) -> None:
        warmed_up = encode(BatchOffset(3, RANGES, warm_ups=1))
        location = checkpoint([END, None], [END, TIME], [warmed_up, TIME], [warmed_up, TIME], state=True)
        seen = [info(location, session, batch_id) for batch_id in (1, 2, 3)]
        assert [(it.sources, it.is_written) for it in seen] == [((), False)] * 3
        assert [(it.no_data_batch.query_id, it.no_data_batch.batch_id) for it in seen if it.no_data_batch] == [
            ("5f2c", n) for n in (1, 2, 3)
        ]
        assert {it.partitions for it in seen} == {tuple(r.topic_partition for r in RANGES)}

    def test_are_of_no_interest_without_state(self, session: str, checkpoint: Callable[..., str]) -> None:
        """They have no output then, and recording them needs no permissions."""
        assert info(checkpoint([END], [END]), session).no_data_batch is None

    def test_differ_by_what_is_logged_of_them(self, session: str, checkpoint: Callable[..., str]) -> None:
        location = checkpoint([END], [END], state=True)
        first = info(location, session).no_data_batch
        log = Path(location) / "offsets" / "1"
        log.write_text(log.read_text().replace("7", "8", 1))
        assert first is not None
        assert info(location, session).no_data_batch not in (None, first)

    def test_are_not_those_in_which_one_source_continues(self, session: str, checkpoint: Callable[..., str]) -> None:
        """The other one receives no request: after a restart Spark has not called it yet."""
        other = encode(BatchOffset(9, (OffsetRange(TopicPartition("gates", 0), 0, 1),)))
        before = encode(BatchOffset(2, RANGES))
        with source(session, FACTS):
            seen = info(checkpoint([before, other], [END, other]), session)
        assert (seen.sources, seen.no_data_batch) == ((FACTS,), None)

    def test_are_distinguished_by_a_checkpoint_with_an_id(self, session: str, checkpoint: Callable[..., str]) -> None:
        location = checkpoint([END], [END], state=True)
        (Path(location) / "metadata").unlink()
        with pytest.raises(SinkUnreachable, match="cannot be read"):
            info(location, session)


def test_a_login_in_the_checkpoint_s_location_is_not_shown(session: str) -> None:
    with pytest.raises(
        SinkUnreachable, match=r"The checkpoint 'nosuch://\*\*\*@bucket/board' cannot be read"
    ) as rejected:
        info("nosuch://key:hunter2@bucket/board", session)
    assert "hunter2" not in "".join(traceback.format_exception(rejected.value)).replace('"nosuch://key:hunter2', "")
