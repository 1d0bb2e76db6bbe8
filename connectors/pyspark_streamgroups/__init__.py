"""Registers ``format("streamgroups")`` in each Spark application without a call.

Spark imports packages whose name begins with ``pyspark_`` once per application, in a Python process of its own, and
registers their ``DefaultSource``. That process has no connection to the user's process, so this source works where
nothing of the user's process is needed: batch reads and writes, and streams of one member. ``sg.register(spark)``
replaces it with the complete source, and Spark logs that. Before 4.2 Spark rejects such a replacement, so this package
contains no source there. Source: ``pyspark.sql.worker.lookup_data_sources`` and ``DataSourceManager`` (Spark 4.2).

Every application with PySpark imports this package for its first data source, so it imports the rest only when it is
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import __version__ as _spark
from pyspark.sql.datasource import DataSource

from streamgroups.spark_features import spark_features

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from streamgroups_spark.formats.data_source import StreamGroupsDataSource
    from streamgroups_spark.internals.spark_api import DataSourceStreamArrowWriter

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The format ``streamgroups`` before ``sg.register(spark)``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "streamgroups"

    def schema(self) -> str:
        """See :meth:`StreamGroupsDataSource.schema`."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """See :meth:`StreamGroupsDataSource.reader`."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query, or one that raises the error of an option that needs registration."""
        from streamgroups_spark.formats.unregistered import stream_reader

        return stream_reader(self._source(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Rejects the sink, which requests the facts of its batch from the user's process.

        Raises:
            InvalidOption: always.
        """
        from streamgroups_spark.session import needs_registration

        raise needs_registration("The sink format('streamgroups')")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """See :meth:`StreamGroupsDataSource.writer`. A batch write needs nothing of the user's process."""
        return self._source().writer(schema, overwrite)

    def _source(self) -> StreamGroupsDataSource:
        from streamgroups_spark.formats.data_source import StreamGroupsDataSource

        return StreamGroupsDataSource(self.options)


if not spark_features(_spark).replaces_sources:
    del DefaultSource
