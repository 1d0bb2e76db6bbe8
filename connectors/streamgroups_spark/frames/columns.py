"""Refers to a column by its exact name.

Called wherever a user names a column, on the driver. Source: Spark's "Identifiers".
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def column(name: str) -> Column:
    """Returns a column, also if its name contains dots or backquotes."""
    return F.col("`" + name.replace("`", "``") + "`")
