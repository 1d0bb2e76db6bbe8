"""X2: a commit that could replace another one is rejected: with an unsafe rename, deltalake acknowledges commits that are lost."""

from __future__ import annotations

import pytest

from streamgroups.connections.variants import DeltaConnection
from streamgroups.errors import InvalidOption
from streamgroups_sinks.delta.connected import storage_options_of
from streamgroups_sinks.delta.sink import DeltaSink

UNSAFE = [
    ("MOUNT_ALLOW_UNSAFE_RENAME", "true"),
    ("mount_allow_unsafe_rename", "1"),
    ("allow_unsafe_rename", "Yes"),
    ("AWS_CONDITIONAL_PUT", "disabled"),
    ("conditional_put", " Disabled"),
]


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_X2_an_option_without_atomic_commits_is_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"storage option {name}={value} .* would be lost"):
        DeltaSink(uri="/data/flights", storage_options={name: value})
    lake = DeltaConnection("lake", "s3://bucket/tables", {name: value})
    with pytest.raises(InvalidOption, match=f"storage option {name}={value} .* would be lost"):
        DeltaSink(connection=lake, uri="flights")
    with pytest.raises(InvalidOption, match="would be lost"):
        storage_options_of(lake, {}, lake.location)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MOUNT_ALLOW_UNSAFE_RENAME", "false"),
        ("conditional_put", "etag"),
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        # It has no effect on the commits of deltalake 1.6.
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
    ],
)
def test_X2_options_with_atomic_commits_are_accepted(name: str, value: str) -> None:
    sink = DeltaSink(uri="/data/flights", storage_options={name: value})
    assert sink._target.storage_options == {name: value}


def test_X2_the_environment_of_the_driver_is_checked_where_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(uri="/data/flights")
    monkeypatch.setenv("MOUNT_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(InvalidOption, match="environment variable MOUNT_ALLOW_UNSAFE_RENAME=true"):
        assert sink._target


@pytest.mark.parametrize(
    ("uri", "name", "value"),
    [
        ("s3://bucket/flights", "MOUNT_ALLOW_UNSAFE_RENAME", "true"),
        ("/data/flights", "AWS_CONDITIONAL_PUT", "disabled"),
    ],
)
def test_X2_a_variable_for_another_kind_of_store_is_accepted(
    uri: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = DeltaSink(uri=uri)
    monkeypatch.setenv(name, value)
    assert sink._target.storage_options == {}


def test_X2_a_store_with_a_lock_needs_no_conditional_writes() -> None:
    options = {"conditional_put": "disabled", "AWS_S3_LOCKING_PROVIDER": "dynamodb"}
    assert DeltaSink(uri="s3://bucket/flights", storage_options=options)._target.storage_options == options
