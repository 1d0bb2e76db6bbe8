"""P1: a step ``sql`` changes no temporary view of the session. The tests need no broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamgroups.errors import InvalidOption
from streamgroups_spark.processors.steps import _selected


@pytest.fixture
def session(local_spark: SparkSession) -> Iterator[SparkSession]:
    yield local_spark
    local_spark.catalog.dropTempView("input")


def test_P1_without_a_view_of_the_user_no_view_remains(session: SparkSession) -> None:
    rows = _selected("SELECT id + 1 AS n FROM input", session.range(2))
    assert sorted(row.n for row in rows.collect()) == [1, 2]
    assert "input" not in [it.name for it in session.catalog.listTables()]


@pytest.mark.parametrize("is_rejected", [False, True])
@pytest.mark.parametrize("by_sql", [False, True])
def test_P1_a_view_of_the_user_is_unchanged(session: SparkSession, by_sql: bool, is_rejected: bool) -> None:
    if by_sql:
        session.sql("CREATE OR REPLACE TEMPORARY VIEW input AS SELECT 42 AS mine")
    else:
        session.sql("SELECT 42 AS mine").createOrReplaceTempView("input")
    session.catalog.cacheTable("input")
    if is_rejected:
        with pytest.raises(InvalidOption, match="Spark rejects the SQL"):
            _selected("SELECT mine FROM input", session.range(2))
    else:
        assert _selected("SELECT id FROM input", session.range(2)).count() == 2
    assert [row.mine for row in session.table("input").collect()] == [42]
    assert session.catalog.isCached("input")


def test_P1_a_step_can_read_rows_of_a_view_of_its_name(session: SparkSession) -> None:
    session.range(3).createOrReplaceTempView("input")
    rows = _selected("SELECT id FROM input WHERE id > 0", session.table("input"))
    assert sorted(row.id for row in rows.collect()) == [1, 2]
    assert session.table("input").count() == 3
