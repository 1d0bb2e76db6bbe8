"""What ``import streamgroups`` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import streamgroups as sg

CURSOR_TYPES = {"TRIM_HORIZON", "AT_TIME", "LATEST", "AT_OFFSET", "AFTER_OFFSET"}
OFFERED = {
    "__version__",
    "record_time",
    "register",
    "exactly_once",
    "explain_time",
    "ledger",
    "DeltaSink",
    "KafkaSink",
    "LedgerPosition",
    "GroupCursors",
    "Message",
    "MetricsListener",
    "PostgresSink",
    "RestartPolicy",
    "supervise",
    "with_event_time",
    "windows",
    "tumbling",
    "hopping",
    "session",
    "python_aggregate",
    "window_results",
    "dead_letters",
    *CURSOR_TYPES,
}


def test_everything_offered_is_there() -> None:
    assert set(sg.__all__) == set(dir(sg)) == OFFERED
    for name in OFFERED:
        assert getattr(sg, name)


def test_what_is_not_offered_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'streamgroups' has no attribute 'regsiter'"):
        _ = sg.regsiter


def test_importing_it_and_its_fakes_imports_neither_spark_nor_a_client() -> None:
    code = """
import sys
import streamgroups, streamgroups.ports, streamgroups.fakes, streamgroups.lookup
print(*sorted({name.partition(".")[0] for name in sys.modules} & {
    "pyspark", "pyarrow", "pandas", "confluent_kafka", "deltalake", "psycopg", "typer", "rich", "tenacity",
    "streamgroups_kafka", "streamgroups_delta", "streamgroups_postgres", "streamgroups_spark", "streamgroups_broker"}))
"""
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.split() == []
