"""A7: no two queries have one transactional id, and each has the same after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.errors import SinkUnreachable
from streamgroups.processors.processor import Processor, Source
from streamgroups_kafka.dlq.redriving import redrive_id
from streamgroups_kafka.instances.entry_writers import manager_id
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.kafka import KafkaStreamWriter, letters_transactional_id, transactional_id_of
from streamgroups_spark.sinks.sink_options import parse_sink

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "topic": "board", "checkpointLocation": "checkpoint"}


@pytest.fixture
def id_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The transactional id of a query on a host, with a checkpoint that has the same path on each."""

    def id_on(host: str, **options: str) -> str:
        directory = tmp_path / host / "checkpoint"
        if not directory.exists():
            directory.mkdir(parents=True)
            # Spark writes it when a query is started on the checkpoint for the first time.
            (directory / "metadata").write_text(json.dumps({"id": f"id-made-on-{host}"}))
        monkeypatch.chdir(directory.parent)
        return KafkaStreamWriter(parse_sink(OPTIONS | options), "session", 1)._transactional_id(BatchInfo((), 0))

    return id_on


def test_two_hosts_with_a_checkpoint_of_the_same_path(id_on: Callable[..., str]) -> None:
    of_group = {"group.id": "airline"}
    assert id_on("one", **of_group) == "streamgroups-airline-id-made-on-one"
    assert id_on("two", **of_group) != id_on("one", **of_group)
    assert id_on("one", **of_group) == id_on("one", **of_group)
    assert id_on("one") == "streamgroups-id-made-on-one"


def test_one_that_is_given_counts(id_on: Callable[..., str]) -> None:
    assert id_on("one", **{"kafka.transactional.id": "mine"}) == "mine"


def test_a_checkpoint_that_is_lost_while_the_query_runs(id_on: Callable[..., str], tmp_path: Path) -> None:
    id_on("one")
    (tmp_path / "one" / "checkpoint" / "metadata").unlink()
    with pytest.raises(SinkUnreachable, match="has no metadata any more"):
        id_on("one")


def test_X3_dead_letters_of_queries_that_share_a_group_have_different_ids() -> None:
    """Both read the shared group clicks, and each has an exclusive group of its own."""
    ids = [letters_transactional_id([f"rules-{n}"]) for n in (1, 2)]
    assert ids == [f"streamgroups-rules-{n}.streamgroups.letters" for n in (1, 2)]
    assert letters_transactional_id([]) is None, "it has the id of the query"


def test_X3_no_group_has_the_id_of_dead_letters() -> None:
    of_letters = letters_transactional_id(["orders"])
    assert of_letters != transactional_id_of("orders-letters")
    assert of_letters == transactional_id_of("orders.streamgroups.letters")
    assert is_metadata_group("orders.streamgroups.letters")


@pytest.mark.parametrize("part", ["", "-letters"])
def test_X3_no_group_has_the_id_of_a_member_of_a_processor(part: str) -> None:
    """The exclusive group local.late-1 could have the name of a member."""
    late = Processor("late", Source("prod", {}), replicas=2)
    of_member = late.transactional_id(member=1, part=part)
    assert of_member != transactional_id_of(f"local.late-1{part}")
    assert of_member != letters_transactional_id([f"local.late-1{part}"])
    assert is_metadata_group(of_member.removeprefix(transactional_id_of("")))
    assert of_member.startswith(transactional_id_of("local.late")), "an ACL of the prefix permits it"


@pytest.mark.parametrize("id_of", [manager_id, redrive_id])
def test_X3_no_group_has_the_id_of_a_manager_or_of_a_redrive(id_of: Callable[[str], str]) -> None:
    """The group of a query can have any name, and its id begins with it."""
    of_groups = transactional_id_of("")
    assert transactional_id_of("instance-orders").startswith(of_groups)
    assert not id_of("orders").startswith(of_groups)


def test_X3_managers_and_redrives_of_one_name_have_different_ids() -> None:
    assert manager_id("orders") != redrive_id("orders")
