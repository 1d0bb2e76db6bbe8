"""The sink implements its port; mypy checks it."""

from __future__ import annotations

import pyarrow as pa

from streamgroups.ledgers.staging import StagingSink
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PostgresStage, PostgresStaged


def test_it_is_a_staging_sink() -> None:
    sink: StagingSink[pa.Schema, pa.RecordBatch, PostgresStage, PostgresStaged]
    sink = PostgresSink(conninfo="dbname=x", table="t")
    assert sink.write.__doc__
