"""Values that Python codecs decode and encode: expressions over one column, so Spark passes no other column to Python.

Called by ``decoding.decode_encode`` on the driver. The codecs of ``streamgroups_schemas`` run in tasks. A registry is pickled with
the function: a plan shows only the name of the function, and no setting (SEMANTICS P3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

from streamgroups.dlq.letter import COLUMN
from streamgroups_schemas.results import PROBLEM
from streamgroups_spark.dlq.failure_column import failure, is_good, with_letter
from streamgroups_spark.frames.columns import column
from streamgroups_spark.internals.arrow_functions import arrow_function
from streamgroups_spark.internals.private_spark import from_arrow_type
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import FEATURES

_DONE = "__streamgroups_done"
#: A function of a task: an array of values to an array of ``result`` and ``problem``.
Codec = Callable[[pa.Array], pa.Array]


def apply_codec(
    df: DataFrame, codec: Codec, name: str, *, type_: DataType, into: str | None, step: str, original: Column | None
) -> DataFrame:
    """Adds a column with the results of a codec, and the column ``dead_letter``.

    Args:
        df: the rows.
        codec: the codec.
        name: the column with its arguments.
        type_: the type of its results.
        into: the name of the new column. An existing column of this name is replaced. ``None``: results are not kept.
        step: the name of the step in letters.
        original: the value of letters if the DataFrame has no column ``value``.
    """
    problem_type = from_arrow_type(PROBLEM)
    returned = StructType([StructField("result", type_), StructField("problem", problem_type)])
    done = _function(codec, returned)(F.when(is_good(df), column(name)))
    staged = df.select("*", done.alias(_DONE))
    problem = F.col(_DONE)["problem"]
    letter = failure(
        staged,
        step=step,
        error_class=problem["error_class"],
        error=problem["error"],
        details=problem["details"],
        value=original,
    )
    kept = [column(it) for it in df.columns if it not in (COLUMN, into)]
    result = [] if into is None else [F.col(_DONE)["result"].alias(into)]
    return staged.select(*kept, *result, with_letter(df, F.when(problem.isNotNull(), letter)))


def _function(codec: Codec, returned: StructType) -> Any:
    def decode_values(values: pa.Array) -> pa.Array:
        prepare_python_worker()
        return codec(values)

    if not FEATURES.has_arrow_api:
        raise FEATURES.needs("A codec of Avro, Protobuf or JSON Schema", "4.1")
    made = arrow_function(decode_values, returned)
    # Otherwise Spark evaluates it again for each filter on its results.
    return made.asNondeterministic()
