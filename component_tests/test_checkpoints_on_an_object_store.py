"""S2, A7: the checkpoint of a query on S3 is read there, and removed there."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from component_tests.object_store import BUCKET, ObjectStore
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.unstarted_checkpoint import clear_unstarted

#: The scheme as Spark resolves it, which Arrow does not support.
CHECKPOINT = f"s3a://{BUCKET}/board"
END = '{"version": 2, "n": 1, "ranges": {"flights": {"0": [0, 5]}}, "resting": {}}'


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        for name, value in found.storage_options.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        yield found


def put(store: ObjectStore, name: str, content: str, directory: str = "board") -> None:
    key = quote(f"{directory}/{name}")
    urlopen(Request(f"{store.url}/{BUCKET}/{key}", content.encode(), method="PUT")).close()


def test_S2_the_last_batch_is_done(store: ObjectStore) -> None:
    put(store, "metadata", '{"id":"5f2c"}')
    put(store, "offsets/0", "v1\n{}\n" + END)
    log = CommitLog(CHECKPOINT)
    end = log.ends(0)["0"]
    assert not log.has_finished(end)
    put(store, "commits/0", "v1\n{}")
    assert log.has_finished(end)
    assert log.query_id() == "5f2c"


def test_S2_the_name_of_a_checkpoint_is_a_text(store: ObjectStore) -> None:
    """Spark does not decode it."""
    put(store, "metadata", '{"id":"5f2c"}', "a b%20#1?+")
    assert CommitLog(f"s3a://{BUCKET}/a b%20#1?+").query_id() == "5f2c"
    assert CommitLog(f"s3a://{BUCKET}/a b #1?+").query_id() is None


def test_what_a_kill_before_the_first_batch_has_left(store: ObjectStore) -> None:
    put(store, "metadata", '{"id":"5f2c"}')
    left_over = "offsets/.0.7f8e0b0e-5a3f-4c55-9d7c-0c9a9a3a6b1d.tmp"
    put(store, left_over, "v1\n")
    assert clear_unstarted(CHECKPOINT) == (f"{BUCKET}/board/{left_over}",)
    assert clear_unstarted(CHECKPOINT) == ()
    assert CommitLog(CHECKPOINT).query_id() == "5f2c"
