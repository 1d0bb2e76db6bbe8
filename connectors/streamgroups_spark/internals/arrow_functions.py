"""Functions of columns on Arrow arrays. Spark 4.0 has only those on pandas Series, which are adapted here.

Used by ``sinks.output_partitions``, ``source.observed_times`` and ``decoding.python_values``. A pandas Series cannot
contain every value of an Arrow array, so in Spark 4.0 only functions of binary, integer and string columns are supported.
Source: ``pyspark.sql.pandas.functions`` (``arrow_udf`` since 4.1, ``pandas_udf``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType

from streamgroups_spark.internals.pickle_checks import shipped_function
from streamgroups_spark.internals.spark_api import FEATURES


def arrow_function(function: Callable[..., Any], returned: DataType | str) -> Any:
    """Returns a function of columns, for Spark 4.1 or newer.

    Args:
        function: a function of Arrow arrays, or of iterators of them, as its type hints declare.
        returned: the type of the result.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    # The annotations of ``arrow_udf`` require the function type, although its warning discourages it.
    return arrow_udf(shipped_function(function), returned)  # type: ignore[call-overload]


def plain_function(function: Callable[..., pa.Array], returned: str, arguments: Sequence[pa.DataType]) -> Any:
    """Returns a function of columns of plain types, for all versions of Spark.

    Args:
        function: a function of Arrow arrays.
        returned: the type of the result: ``int`` or ``bigint``.
        arguments: the Arrow types of the columns: binary, integer or string. Spark 4.0 passes integers of a column with
            nulls as floating point, which is exact up to 2**53.
    """
    if FEATURES.has_arrow_api:
        return arrow_function(function, returned)
    from pyspark.sql.pandas.functions import pandas_udf

    return pandas_udf(shipped_function(over_series(function, arguments)), returned)  # type: ignore[call-overload]


def over_series(function: Callable[..., pa.Array], arguments: Sequence[pa.DataType]) -> Callable[..., Any]:
    """Returns the function of pandas Series that calls a function of Arrow arrays.

    Args:
        function, arguments: as in :func:`plain_function`.
    """
    import pandas as pd

    types = tuple(arguments)

    def on_series(*columns: Any) -> Any:
        arrays = [pa.Array.from_pandas(column, type=type_) for column, type_ in zip(columns, types, strict=True)]
        # Spark converts it to Arrow again, without a loss.
        return pd.Series(pd.arrays.ArrowExtensionArray(function(*arrays)))

    # Spark reads the kind of the function from its type hints, as classes.
    on_series.__annotations__ = {"columns": pd.Series, "return": pd.Series}
    return on_series
