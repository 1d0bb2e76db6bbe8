"""O1: ``topics tail`` shows the last records independently of gaps, and follows the topic. Topics are created and
filled.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from integration_tests.command_line import streamgroups
from streamgroups_testkit.producing import produce

COMMAND = [sys.executable, "-c", "from streamgroups_cli import main; main()"]


def cli(bootstrap: str, *arguments: str) -> str:
    done = streamgroups(*arguments, "--bootstrap-server", bootstrap)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tailed(bootstrap: str, topic: str, *arguments: str) -> list[tuple[int, int, str]]:
    lines = cli(bootstrap, "topics", "tail", topic, "-o", "json", *arguments).splitlines()
    return sorted((r["partition"], r["offset"], r["value"]) for r in map(json.loads, lines))


def test_the_last_records_of_each_partition(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2, size_bytes=1)
    assert tailed(bootstrap, topic, "-n", "2") == [(0, 8, "16"), (0, 9, "18"), (1, 8, "17"), (1, 9, "19")]
    assert tailed(bootstrap, f"{topic}:1", "-n", "100") == [(1, n, str(2 * n + 1)) for n in range(10)]
    assert tailed(bootstrap, new_topic(1)) == []


def test_G13_markers_and_aborted_records_do_not_hide_the_last_ones(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{uuid.uuid4().hex[:8]}"})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=str(n), partition=0, headers=[("n", str(n)), ("empty", None)])
        producer.flush(30)
        if n < 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    committed_only = ("--kafka", "isolation.level=read_committed")
    assert tailed(bootstrap, topic, "-n", "2", *committed_only) == [(0, 2, "1"), (0, 4, "2")]
    assert tailed(bootstrap, topic, "-n", "1") == [(0, 10, "5")]
    (line,) = cli(bootstrap, "topics", "tail", topic, "-n", "1", "-o", "json").splitlines()
    assert json.loads(line)["headers"] == [["n", "5"], ["empty", None]]


def test_following(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 1, partitions=1, size_bytes=1)
    command = [*COMMAND, "topics", "tail", topic, "--follow", "-o", "json", "-b", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as participant:
        assert participant.stdout is not None
        assert json.loads(participant.stdout.readline())["value"] == "0"
        produce(bootstrap, topic, 2, partitions=1, first=1, size_bytes=1)
        assert [json.loads(participant.stdout.readline())["value"] for _ in range(2)] == ["1", "2"]
        participant.send_signal(signal.SIGINT)
        assert participant.wait(30) == 0


def test_topics_are_created_and_filled(bootstrap: str, group: str, tmp_path: Path) -> None:
    topic = f"{group}-flights"
    created = streamgroups(
        "topics", "create", topic, "--partitions", "2", "--config", "retention.ms=-1", "-b", bootstrap
    )
    assert created.returncode == 0, created.stderr
    file = tmp_path / "records"
    file.write_text(
        '{"key": "BOS", "value": {"delay": 5}, "headers": {"a": "b"}, "partition": 1, "timestamp": 7}\n' * 3
    )
    written = streamgroups("topics", "produce", topic, str(file), "--json", "-b", bootstrap)
    assert "3 records were written" in written.stderr
    shown = streamgroups("topics", "tail", topic, "-n", "1", "-o", "json", "-b", bootstrap)
    record = json.loads(shown.stdout)
    assert (record["partition"], record["offset"], record["value"]) == (1, 2, '{"delay":5}')
    assert (record["time"], record["headers"]) == ("1970-01-01T00:00:00.007Z", [["a", "b"]])
    rejected = streamgroups("topics", "create", f"{topic}-2", "--config", "retention=1", "-b", bootstrap)
    assert (rejected.returncode, "retention" in rejected.stderr) == (2, True)
