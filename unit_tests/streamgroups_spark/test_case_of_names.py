"""P4: a function of ``sg.safely`` replaces the columns that have the name of its output for the session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructType

from streamgroups_spark.dlq.safely import _kept


@pytest.mark.parametrize(("setting", "kept"), [("true", ["n", "Price"]), ("false", ["n"]), (None, ["n"])])
def test_P4_names_in_another_case_are_other_columns_with_the_setting_of_spark(
    setting: str | None, kept: list[str]
) -> None:
    settings = {} if setting is None else {"spark.sql.caseSensitive": setting}
    schema = StructType().add("n", IntegerType()).add("Price", IntegerType()).add("dead_letter", IntegerType())
    df: Any = SimpleNamespace(schema=schema, sparkSession=SimpleNamespace(conf=SimpleNamespace(get=settings.get)))
    assert [it.name for it in _kept(df, StructType().add("price", IntegerType()))] == kept
