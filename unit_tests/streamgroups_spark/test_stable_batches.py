"""X7: what ``sg.side_effects.stable_batches`` does before an effect, in which order, and which queries it rejects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import streamgroups as sg
from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.errors import FencedMember, InvalidOption, SinkUnreachable
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_operators.pin_store import PinStore
from streamgroups_spark.messages.batch import BatchFacts, CommittedReply, CommittedRequest
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch
from streamgroups_spark.stable_input import batches as module
from streamgroups_spark.stable_input import tasks

P0 = TopicPartition("orders", 0)
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("value", StringType()),
    ]
)


@dataclass
class FakeFrame:
    """A DataFrame that runs its functions here. It counts how often its rows are computed."""

    first: int = 0
    end: int = 0
    content: str = ""
    schema: StructType = SCHEMA
    computed: int = 0
    functions: list[Any] = field(default_factory=list)
    ids: list[int] | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def sparkSession(self) -> FakeFrame:
        return self

    @property
    def sparkContext(self) -> FakeFrame:
        return self

    defaultParallelism = 2  # noqa: N815

    def range(self, first: int, end: int, _step: int, _tasks: int) -> FakeFrame:
        return FakeFrame(ids=list(range(first, end)))

    def mapInArrow(self, function: Any, _schema: Any) -> FakeFrame:
        self.functions.append(function)
        return self

    def collect(self) -> list[Row]:
        self.computed += 1
        if self.ids is None:
            rows = [(P0.topic, P0.partition, offset, self.content) for offset in range(self.first, self.end)]
            batch = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=_ARROW)
        else:
            batch = pa.table({"id": self.ids})
        (function,) = self.functions
        return [Row(**row) for it in function(batch.to_batches()) for row in it.to_pylist()]


_ARROW = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])


class FakeTask:
    attempt = 0

    @classmethod
    def get(cls) -> type[FakeTask]:
        return cls

    @classmethod
    def taskAttemptId(cls) -> int:
        cls.attempt += 1
        return cls.attempt


@dataclass
class Source:
    """The facts of the source, and whether the broker confirms its member."""

    facts: BatchFacts
    confirms: bool = True

    def info(self, batch: LoggedBatch, _session: str, *, confirmed: bool = False) -> BatchInfo:
        if confirmed and not self.confirms:
            raise FencedMember("Not confirmed.")
        return BatchInfo((self.facts,), batch.batch_id)

    def reads(self, first: int, end: int, generation: int) -> None:
        ranges = (OffsetRange(P0, first, end),)
        metadata = ConsumerGroupMetadata("billing", generation, f"member-{generation}")
        self.facts = replace(
            self.facts, end=encode(BatchOffset(1, ranges)), ranges=ranges, held=ranges, group_metadata=metadata
        )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    facts = BatchFacts({}, "billing", "one", (), (), (), None, MembershipMode.SHARED, joins=True)
    found = Source(facts)
    monkeypatch.setattr(module, "logged_batch", lambda _, batch_id: LoggedBatch(batch_id))
    monkeypatch.setattr(module, "batch_info", found.info)
    monkeypatch.setattr(tasks, "TaskContext", FakeTask)
    return found


class Effects:
    """The contents that an effect has received, by batch."""

    def __init__(self) -> None:
        self.received: list[dict[int, str]] = []
        self.repeated: list[list[str]] = []
        self.keys: dict[int, set[str]] = {}

    def __call__(self, records: Any, batch: sg.side_effects.StableBatch) -> None:
        rows = records.collect()
        self.received.append({row.offset: row.value for row in rows})
        self.repeated.append([str(it) for it in batch.repeated])
        for row in rows:
            self.keys.setdefault(row.offset, set()).add(row.idempotency_key)


@pytest.fixture
def stable(tmp_path: Path, source: Source) -> Callable[[Effects], sg.side_effects.StableBatches]:
    def make(effects: Effects) -> sg.side_effects.StableBatches:
        return sg.side_effects.stable_batches(
            effects, checkpoint=str(tmp_path / "c"), location=str(tmp_path / "stable")
        )

    return make


def run(batches: sg.side_effects.StableBatches, frame: FakeFrame) -> FakeFrame:
    batches(frame, 0)  # type: ignore[arg-type]
    return frame


def test_X7_a_replay_computes_nothing_and_other_batches_the_rest(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    effects = Effects()
    source.reads(10, 14, generation=3)
    run(stable(effects), FakeFrame(10, 14, "first"))
    # The same batch in a new process, then smaller batches of the next owner.
    assert run(stable(effects), FakeFrame(10, 14, "again")).computed == 0
    source.reads(10, 12, generation=4)
    owner = stable(effects)
    assert run(owner, FakeFrame(10, 12, "owner")).computed == 0
    source.reads(12, 16, generation=4)
    assert run(owner, FakeFrame(12, 16, "owner")).computed == 1
    first = dict.fromkeys(range(10, 14), "first")
    assert effects.received == [
        first,
        first,
        {10: "first", 11: "first"},
        {12: "first", 13: "first", 14: "owner", 15: "owner"},
    ]
    assert effects.repeated == [[], ["orders-0[10,14)"], ["orders-0[10,12)"], ["orders-0[12,14)"]]
    assert all(len(keys) == 1 for keys in effects.keys.values())


def test_X7_a_member_without_confirmation_has_no_effect_and_its_pin_is_not_used_against_the_owner(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    effects, zombie, owner = Effects(), stable(Effects()), stable(Effects())
    owner._effect = effects
    source.reads(10, 12, generation=4)
    run(owner, FakeFrame(10, 12, "owner"))
    zombie._effect = effects
    source.reads(10, 14, generation=3)
    source.confirms = False
    with pytest.raises(FencedMember):
        run(zombie, FakeFrame(10, 14, "zombie"))
    assert effects.received == [dict.fromkeys((10, 11), "owner")]


def test_X7_the_pins_of_a_member_of_a_deleted_group_are_not_used(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen before it writes them. The group is deleted, and the new one counts its generations from 1."""
    effects, unused = Effects(), Effects()
    zombie = stable(unused)
    pin = zombie._pin

    def frozen(*given: Any) -> Any:
        source.reads(10, 14, generation=1)
        run(stable(effects), FakeFrame(10, 14, "owner"))
        source.confirms = False
        return pin(*given)

    monkeypatch.setattr(zombie, "_pin", frozen)
    source.reads(10, 14, generation=7)
    with pytest.raises(FencedMember):
        run(zombie, FakeFrame(10, 14, "zombie"))
    source.reads(10, 14, generation=2)
    source.confirms = True
    run(stable(effects), FakeFrame(10, 14, "next"))
    assert effects.received == [dict.fromkeys(range(10, 14), "owner")] * 2
    assert unused.received == []


def test_X7_a_pin_file_that_cannot_be_deleted_does_not_hide_why_the_batch_fails(
    source: Source,
    stable: Callable[[Effects], sg.side_effects.StableBatches],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unreachable(*_: object) -> None:
        raise SinkUnreachable("No answer.")

    monkeypatch.setattr(PinStore, "delete", unreachable)
    source.reads(10, 14, generation=3)
    source.confirms = False
    with pytest.raises(FencedMember):
        run(stable(Effects()), FakeFrame(10, 14))
    assert "whose effect has not run, is not deleted: No answer." in caplog.text


def test_X7_filtered_records_are_pinned_too(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    effects = Effects()
    source.reads(10, 14, generation=3)
    run(stable(effects), FakeFrame(10, 10))
    assert run(stable(effects), FakeFrame(10, 14, "again")).computed == 0
    assert effects.received == [{}, {}]


def test_a_replay_without_partitions_has_no_effect(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    effects = Effects()
    run(stable(effects), FakeFrame(10, 14))
    assert effects.received == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType(SCHEMA.fields[1:]), "no column 'topic'.*Keep the columns"),
        (StructType([*SCHEMA.fields[:2], StructField("offset", StringType())]), "'offset' has the type string"),
        (StructType([*SCHEMA.fields, SCHEMA.fields[0]]), "'topic' has the type string, twice"),
        (StructType([*SCHEMA.fields, StructField("idempotency_key", StringType())]), "Rename it"),
    ],
)
def test_batches_that_cannot_be_attributed_are_rejected(
    schema: StructType, message: str, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    with pytest.raises(InvalidOption, match=message):
        run(stable(Effects()), FakeFrame(schema=schema))


def test_a_query_with_state_is_rejected(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches], tmp_path: Path
) -> None:
    source.reads(10, 14, generation=3)
    (tmp_path / "c" / "state").mkdir(parents=True)
    with pytest.raises(InvalidOption, match=r"has an operator with state.*sg\.exactly_once"):
        run(stable(Effects()), FakeFrame(10, 14))
    (tmp_path / "c" / "state").rmdir()
    source.facts = replace(source.facts, states_run_id="1f3a9c2b7d10")
    with pytest.raises(InvalidOption, match="has an operator with state"):
        run(stable(Effects()), FakeFrame(10, 14))


def test_a_group_name_of_two_clusters_is_rejected(source: Source) -> None:
    source.reads(10, 14, generation=3)
    both = [replace(source.facts, end={**source.facts.end, "cluster": cluster}) for cluster in ("first", "second")]
    with pytest.raises(InvalidOption, match=r"group 'billing' from 2 clusters.*one query for each cluster"):
        module.check_ordinary(BatchInfo(tuple(both), 0), has_state=False)
    assert module.check_ordinary(BatchInfo((both[0], both[0]), 0), has_state=False) == "billing"


def test_X7_the_source_of_the_batch_reports_the_committed_offsets(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of the same name in another cluster has other offsets."""
    requested: list[tuple[Any, Any]] = []

    def request_source(_session: str, end: Any, request: Any) -> CommittedReply:
        requested.append((end, request))
        return CommittedReply({P0: 14})

    monkeypatch.setattr(module, "request_source", request_source)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    source.reads(10, 14, generation=3)
    run(stable(Effects()), FakeFrame(10, 14))
    assert requested == [(source.facts.end, CommittedRequest(source.facts.end, (P0,)))]


def test_pinned_records_with_other_columns_are_rejected(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches]
) -> None:
    source.reads(10, 14, generation=3)
    run(stable(Effects()), FakeFrame(10, 14, "first"))
    more = StructType([*SCHEMA.fields, StructField("more", StringType())])
    with pytest.raises(InvalidOption, match=r"previous version of the program.*another 'name'"):
        run(stable(Effects()), FakeFrame(10, 14, schema=more))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"location": ""}, InvalidOption, "'location' is empty"),
        ({"checkpoint": " "}, InvalidOption, "'checkpoint' is empty"),
        ({"name": ""}, InvalidOption, "'name' is empty"),
        ({"retention": "10"}, InvalidOption, "'retention' is '10'"),
        ({"location": "nfs2://host/x"}, InvalidOption, "not supported"),
        ({"effect": None}, InvalidOption, "not a function"),
    ],
)
def test_invalid_arguments_are_rejected(
    arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"effect": Effects(), "checkpoint": "c", "location": str(tmp_path)} | arguments
    with pytest.raises(error, match=message):
        sg.side_effects.stable_batches(given.pop("effect"), **given)


def test_the_first_batch_reports_a_location_that_cannot_be_written_to(source: Source, tmp_path: Path) -> None:
    source.reads(10, 14, generation=3)
    effects, location = Effects(), tmp_path / "stable"
    frame = FakeFrame(10, 14, "first")
    denied = sg.side_effects.stable_batches(effects, checkpoint=str(tmp_path / "c"), location=str(location))
    assert not location.exists(), "the call writes nothing"
    location.touch()
    with pytest.raises(SinkUnreachable, match="cannot be used"):
        run(denied, frame)
    assert (frame.computed, effects.received) == (0, [])


@pytest.mark.parametrize("restarted", [False, True])
def test_X7_a_volume_that_is_not_mounted_is_not_a_location_without_pins(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches], tmp_path: Path, restarted: bool
) -> None:
    effects, mounted, volume = Effects(), tmp_path / "stable", tmp_path / "volume"
    batches = stable(effects)
    source.reads(10, 14, generation=3)
    run(batches, FakeFrame(10, 14, "first"))
    mounted.rename(volume)
    mounted.mkdir()
    batches = stable(effects) if restarted else batches
    frame = FakeFrame(10, 14, "again")
    for _ in range(2):
        with pytest.raises(SinkUnreachable, match=r"The volume is not mounted, or its files were deleted\.") as raised:
            run(batches, frame)
        assert raised.value.retriable
    assert (frame.computed, len(effects.received)) == (0, 1)
    shutil.rmtree(mounted)
    volume.rename(mounted)
    run(batches, frame)
    assert (frame.computed, effects.received) == (0, [dict.fromkeys(range(10, 14), "first")] * 2)


def test_X7_an_effect_does_not_run_if_its_volume_is_unmounted_before_its_pin_is_written(
    source: Source, stable: Callable[[Effects], sg.side_effects.StableBatches], tmp_path: Path
) -> None:
    effects, mounted = Effects(), tmp_path / "stable"
    batches = stable(effects)

    class Unmounting(FakeFrame):
        def collect(self) -> list[Row]:
            rows = super().collect()
            mounted.rename(tmp_path / "volume")
            return rows

    source.reads(10, 14, generation=3)
    with pytest.raises(SinkUnreachable, match="is not mounted"):
        run(batches, Unmounting(10, 14, "first"))
    assert effects.received == []
