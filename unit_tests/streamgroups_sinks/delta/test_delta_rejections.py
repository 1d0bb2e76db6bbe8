"""Tables, settings and failures that are rejected, each with a remedy and without secrets."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError

import streamgroups as sg
from streamgroups.connections.variants import DeltaConnection
from streamgroups.errors import (
    InvalidOption,
    NotAuthorized,
    RecordRejected,
    SinkRejected,
    SinkUnreachable,
    StreamGroupsError,
)
from streamgroups_sinks.delta.data_files import _check_nulls, fitted
from streamgroups_sinks.delta.partition_values import _decoded
from streamgroups_sinks.delta.stages import Stage
from streamgroups_sinks.delta.store_errors import readable, translated
from streamgroups_sinks.delta.writer_features import Demands, check_files_may_be_added, check_ledger


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "merge"}, "mode='merge' is unknown. Use one of append, overwrite_partitions, upsert."),
        ({"mode": "upsert"}, "mode='upsert' requires a key"),
        ({"key": ("id",)}, "key is not supported with mode='append'"),
        ({"delete_marker": "gone"}, "delete_marker is not supported with mode='append'"),
        ({"mode": "overwrite_partitions"}, "mode='overwrite_partitions' requires partition_by"),
        ({"mode": "upsert", "key": ("id",), "delete_marker": "id"}, "delete_marker='id' is a column of the key"),
        ({"mode": "upsert", "key": "id"}, "key='id' is not a tuple of column names"),
        ({"partition_by": ("a", "a")}, "contains a column twice"),
        ({"partition_by": 7}, "partition_by=7 is not a tuple"),
        ({"uri": ""}, "uri is neither a path nor a URL"),
        ({"uri": "s3://user:hunter2@bucket/flights"}, "uri contains credentials"),
        ({"uri": "s3://AKIA:secretkey/hunter2@bucket/t"}, "uri contains credentials"),
        ({"uri": "s3://AKIA:hunter2]@bucket/t"}, "uri contains credentials"),
        ({"uri": "s3://[hunter2/t"}, "uri has an invalid host"),
        ({"uri": "az://c/flights?sig=hunter2"}, "uri contains credentials"),
        ({"uri": "dbfs:/flights"}, "uri has the scheme 'dbfs:' without a host or bucket. Write dbfs://HOST/PATH"),
        ({"uri": "hdfs:/flights"}, "uri has the scheme 'hdfs:' without a host or bucket"),
        ({"uri": "s3:hunter2@bucket/flights"}, "uri has a relative path after the scheme 's3:'"),
        ({"uri": "file:flights"}, "uri has a relative path after the scheme 'file:'"),
        ({"uri": "file://data/flights"}, "uri has a host after 'file://'"),
        ({"storage_options": {"timeout": 30}}, "storage_options must be a mapping of text"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption) as rejected:
        sg.DeltaSink(**({"uri": "/flights"} | settings))
    assert why in rejected.value.what + " " + rejected.value.remedy
    assert rejected.value.remedy
    assert "hunter2" not in str(rejected.value)


def test_a_sink_is_pickled_whole_and_shown_without_secrets() -> None:
    sink = sg.DeltaSink(uri="s3://b/t", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"}, partition_by=["day"])  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert sink.partition_by == ("day",)
    assert "hunter2" not in repr(sink)
    assert "hunter2" not in repr(sink._target)


def test_a_path_does_not_depend_on_where_a_task_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert sg.DeltaSink(uri="flights").uri == str(tmp_path / "flights")
    assert sg.DeltaSink(uri="abfss://c@account.dfs.example/t").uri == "abfss://c@account.dfs.example/t"
    assert sg.DeltaSink(uri="./a:b/t").uri == str(tmp_path / "a:b/t")


def test_the_error_of_a_table_outside_of_its_connection_has_no_login() -> None:
    with pytest.raises(InvalidOption, match="The table 's3://bucket/t' is outside the location") as rejected:
        sg.DeltaSink(connection=DeltaConnection("lake", "s3://bucket/x"), uri="s3://AKIA:secretkey/hunter2@bucket/t")
    assert "hunter2" not in str(rejected.value)


def test_a_path_as_hadoop_and_spark_print_it_is_the_same_directory() -> None:
    assert sg.DeltaSink(uri="file:/data/x").uri == "/data/x"
    assert sg.DeltaSink(uri="file:///data/x").uri == "file:///data/x"


@pytest.mark.parametrize(
    ("uri", "changed"),
    [
        ("/data/a%20b", "%20"),
        ("/data/hour=08%3A00", "%3A"),
        ("file:/data/a%20b", "%20"),
        ("file:///data/a%2520b", "%20"),
        ("s3://bucket/a%2520b", "%20"),
        ("/data/a\\b", "\\"),
        ("file:///data/a%5Cb", "\\"),
        ("s3://bucket/a\\b", "\\"),
    ],
)
def test_a_path_that_deltalake_changes_when_it_reads_the_log_is_rejected(uri: str, changed: str) -> None:
    with pytest.raises(InvalidOption) as rejected:
        sg.DeltaSink(uri=uri)
    assert f"contains '{changed}', which deltalake changes" in str(rejected.value)


def test_a_working_directory_that_deltalake_changes_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a%20b").mkdir()
    monkeypatch.chdir(tmp_path / "a%20b")
    with pytest.raises(InvalidOption, match="contains '%20'"):
        sg.DeltaSink(uri="flights")


@pytest.mark.parametrize("uri", ["/a b#c?d=ü", "/50%", "/a%zz", "file:///a%20b", "s3://b/a%20b", "s3://b/a%5Cb"])
def test_a_path_that_deltalake_does_not_change_is_accepted(uri: str) -> None:
    assert sg.DeltaSink(uri=uri).uri == uri


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (TableNotFoundError("No files in log segment"), SinkRejected, "Delta table /flights does not exist"),
        (TableNotFoundError("Unknown scheme: nope."), InvalidOption, "a store that deltalake supports"),
        (OSError("Permission denied (os error 13)"), NotAuthorized, "Grant this user the right"),
        (OSError("Server returned 403 Forbidden"), NotAuthorized, "Grant this user the right"),
        (OSError("Read-only file system (os error 30)"), NotAuthorized, "Grant this user the right"),
        (OSError("No space left on device (os error 28)"), SinkUnreachable, "Free disk space"),
        (OSError("Connection refused (os error 111)"), SinkUnreachable, "Try again"),
        (
            OSError('Generic Config error failed to parse "hunter2" as Duration'),
            InvalidOption,
            "Correct storage_options",
        ),
        (OSError("404 Not Found <Code>NoSuchBucket</Code>"), SinkRejected, "Create the bucket"),
        (DeltaError("Object Store error: error sending request"), SinkUnreachable, "Try again"),
        (DeltaError("Invariant (n > 0) violated"), SinkRejected, "constraints"),
        (ValueError("hunter2"), SinkRejected, "***"),
    ],
)
def test_failures_are_classified_by_their_remedy(error: Exception, kind: type[StreamGroupsError], message: str) -> None:
    found = translated(error, "reading", uri="/flights", secrets=("hunter2", "us"))
    assert type(found) is kind
    assert message in str(found)
    assert "/flights" in found.what
    assert "hunter2" not in str(found)


def test_X2_only_secrets_of_the_storage_options_are_replaced_and_the_longest_first() -> None:
    sink = sg.DeltaSink(
        uri="s3://bucket/flights",
        storage_options={
            "AWS_ACCESS_KEY_ID": "minioadmin",
            "AWS_SECRET_ACCESS_KEY": "minioadmin123",
            "aws_session_token": "minioadmin123-token",
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "http://ann:hunter2@minio:9000",
        },
    )
    error = OSError("minioadmin / minioadmin123 / minioadmin123-token in eu-west-1 of http://ann:hunter2@minio:9000")
    cause = readable(error, sink._target.secrets())
    assert cause == "minioadmin / *** / *** in eu-west-1 of ***"
    assert "hunter2" not in readable(error, ())


@pytest.mark.parametrize("secret", ["denied", "Access", "Access denied", "Store"])
def test_X2_a_secret_that_is_a_word_of_the_error_does_not_change_its_meaning(secret: str) -> None:
    error = OSError("Store: Access denied")
    found = translated(error, "reading", uri="/flights", secrets=(secret,))
    assert type(found) is NotAuthorized
    assert secret not in found.what


def test_a_commit_that_fails_for_the_store_may_have_been_done() -> None:
    found = translated(OSError("timed out"), "committing to", uri="/flights", secrets=(), committing=True)
    assert type(found) is SinkUnreachable
    assert "It is not known whether the batch was committed." in found.what


@pytest.mark.parametrize(
    ("demands", "what"),
    [
        (Demands(["rowTracking"], {}, {}), "the feature 'rowTracking'"),
        (Demands([], {"delta.constraints.positive": "n > 0"}, {}), "the constraint 'positive'"),
        (Demands([], {}, {"n": {"delta.invariants": "{}"}}), "an invariant on column 'n'"),
        (Demands([], {}, {"n": {"delta.generationExpression": "m + 1"}}), "the generated column 'n'"),
        (Demands([], {}, {"n": {"delta.identity.start": 1}}), "the generated column 'n'"),
        (Demands(["columnMapping"], {"delta.columnMapping.mode": "name"}, {}), "column mapping"),
    ],
)
def test_unsupported_requirements_of_a_table_are_rejected(demands: Demands, what: str) -> None:
    with pytest.raises(SinkRejected, match=what):
        check_files_may_be_added(demands, uri="/flights", replaces=False)


@pytest.mark.parametrize(
    ("feature", "settings"), [("appendOnly", {"delta.appendOnly": "true"}), ("deletionVectors", {})]
)
def test_some_tables_may_be_appended_to_but_not_overwritten(feature: str, settings: dict[str, str]) -> None:
    demands = Demands([feature], settings, {"n": {"comment": "a number"}})
    check_files_may_be_added(demands, uri="/flights", replaces=False)
    with pytest.raises(SinkRejected, match="/flights"):
        check_files_may_be_added(demands, uri="/flights", replaces=True)


def test_a_table_that_forgets_ledgers_is_rejected() -> None:
    check_ledger({"delta.logRetentionDuration": "interval 1 days"}, uri="/flights")
    with pytest.raises(SinkRejected, match="would lose its position"):
        check_ledger({"delta.setTransactionRetentionDuration": "interval 7 days"}, uri="/flights")


STAGE = Stage("t", "id", 0, pa.schema([("id", pa.int64())]), (), frozenset({"id"}))


def test_a_null_that_may_not_be_is_named_by_its_row() -> None:
    batch = pa.record_batch({"id": pa.array([1, None], pa.int32())})
    with pytest.raises(RecordRejected, match="Row 11 of the task has null in column 'id'"):
        _check_nulls(batch, STAGE, 10)


def test_a_row_that_deletes_needs_only_its_key() -> None:
    stage = replace(STAGE, required=frozenset({"id", "n"}), delete_marker="gone", key=("id",))

    def row(**values: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [{"id": 1, "n": 1, "gone": True} | values],
            pa.schema({"id": pa.int64(), "n": pa.int64(), "gone": pa.bool_()}),
        )

    _check_nulls(row(n=None), stage, 0)
    for missing in ({"id": None}, {"n": None, "gone": False}, {"n": None, "gone": None}):
        with pytest.raises(RecordRejected, match="Row 0 of the task has null"):
            _check_nulls(row(**missing), stage, 0)


@pytest.mark.parametrize(
    ("values", "of", "required"),
    [
        ([1], pa.timestamp("ns"), pa.timestamp("us")),
        ([300], pa.int64(), pa.int8()),
        (["x"], pa.string(), pa.int64()),
    ],
)
def test_values_that_would_lose_information_are_rejected(
    values: list[Any], of: pa.DataType, required: pa.DataType
) -> None:
    batch = pa.record_batch({"a": pa.array(values, of)})
    with pytest.raises(RecordRejected, match="Column 'a' of the records cannot be converted to"):
        fitted(batch, pa.schema([("a", required)]))


def test_a_path_that_the_log_would_hold_otherwise_is_not_removed_under_another_name() -> None:
    assert _decoded("day=a%2520b/part%5B0%5D.parquet", "/flights") == "day=a%20b/part[0].parquet"
    for path in ("day=é/part-0.parquet", "day=a%3Ab/part-0.parquet"):
        with pytest.raises(SinkRejected, match="cannot be written to the table's log unchanged"):
            _decoded(path, "/flights")


@pytest.mark.parametrize("directory", ["/data/run-403/flights", "/data/forbidden/flights", "/data/connect/flights"])
def test_the_name_of_a_directory_is_no_reason(directory: str) -> None:
    missing = TableNotFoundError(f'Local path "{directory}" does not exist or you don\'t have access!')
    found = translated(missing, "reading", uri=directory, secrets=())
    assert isinstance(found, SinkRejected)
    assert found.remedy.endswith("create_table=True.")


def test_the_status_of_an_answer_is_a_reason() -> None:
    denied = OSError("Client error with status 403: no body")
    assert isinstance(translated(denied, "reading", uri="s3://flights", secrets=()), NotAuthorized)
