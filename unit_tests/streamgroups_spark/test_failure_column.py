"""P4: a letter names the parts of its record that the row does not have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from streamgroups_spark.dlq.failure_column import missing_of

KEY, VALUE, TIME = ("key", "binary"), ("value", "string"), ("timestamp", "timestamp")


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ([KEY, VALUE], {}),
        ([VALUE, TIME], {"missing": "key"}),
        ([KEY, ("value", "double")], {"missing": "value"}),
        ([KEY, KEY, ("n", "integer")], {"missing": "key, value"}),
    ],
)
def test_P4_a_row_without_a_part_of_its_record(columns: list[tuple[str, str]], missing: dict[str, str]) -> None:
    schema = StructType()
    for name, type_ in columns:
        schema = schema.add(name, type_)
    assert missing_of(schema) == missing
    assert missing_of(schema, has_value=True) == ({"missing": "key"} if "key" in str(missing) else {})
