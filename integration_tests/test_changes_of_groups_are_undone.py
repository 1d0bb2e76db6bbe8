"""O1, O2: on a real broker ``groups copy`` and ``groups undo`` restore what ``export`` shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from integration_tests.command_line import streamgroups
from streamgroups_testkit.producing import produce


def test_O2_a_reset_and_a_copy_are_undone(
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("STREAMGROUPS_BOOTSTRAP_SERVER", bootstrap)
    topic, copy_id = new_topic(2), f"{group}-copy"
    produce(bootstrap, topic, 20, partitions=2)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaTopicPartition(topic, p, 3 + p, "by hand") for p in (0, 1)], asynchronous=False)
    consumer.close()

    def run(*arguments: str) -> str:
        result = streamgroups("groups", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    before = f"{topic},0,3\n{topic},1,4\n"
    run("copy", group, copy_id, "--execute")
    assert run("export", copy_id) == before
    assert "by hand" not in run("export", copy_id, "-o", "json")
    run("reset", group, "--all-topics", "--to-latest", "--execute")
    assert run("export", group) != before
    run("undo", group, "--execute")
    assert run("export", group) == before
    # F2: the commit of a tool has a mark of its own.
    assert run("export", group, "-o", "json").count('"streamgroups:tool;') == 2
    run("delete", group, "--execute")
    run("undo", group, "--execute")
    assert run("export", group) == before
    run("undo", copy_id, "--execute")
    assert streamgroups("groups", "export", copy_id).returncode == 1
    run("delete", group, "--execute")
