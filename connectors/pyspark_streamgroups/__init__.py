"""Registers ``format("streamgroups")`` in each Spark application without a call.

Spark imports packages whose name begins with ``pyspark_`` once per application, in a Python process of its own, and
registers their ``DefaultSource``. That process has no connection to the user's process, so this source works where
nothing of the user's process is needed: batch reads and writes, and streams of one member with their sink. A pipeline of
``pyspark.pipelines`` has no other source. ``sg.register(spark)`` replaces it with the complete source, and Spark logs
that. Before 4.2 Spark rejects such a replacement, so this package contains no source there. Source:
``pyspark.sql.worker.lookup_data_sources`` and ``DataSourceManager`` (Spark 4.2).

Every application with PySpark imports this package for its first data source, so it imports the rest only when it is
used.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, ClassVar

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

#: The variable by which Spark names the session of Spark Connect to the process that creates a source. A classic session has none.
CONNECT_SESSION = "SPARK_JOB_ARTIFACT_UUID"


class AutomaticSource(DataSource):
    """The format ``streamgroups`` before ``sg.register(spark)``."""

    #: The key by which the sink of a query finds its source. An application has one (:func:`_of_application`).
    session: ClassVar[str]

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        #: Spark creates the source in a process of the driver, and passes it on to other processes without this variable.
        self._connect_session = os.environ.get(CONNECT_SESSION)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "streamgroups"

    def schema(self) -> StructType:
        """See :meth:`StreamGroupsDataSource.schema`."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """See :meth:`StreamGroupsDataSource.reader`."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query, or one that raises the error of an option that needs registration."""
        from streamgroups_spark.formats.unregistered import stream_reader

        return stream_reader(self._source(), schema, self._connect_session)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """See :meth:`StreamGroupsDataSource.streamWriter`. It finds its source by the key of the application."""
        return self._source().streamWriter(schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """See :meth:`StreamGroupsDataSource.writer`. A batch write needs nothing of the user's process."""
        return self._source().writer(schema, overwrite)

    def _source(self) -> StreamGroupsDataSource:
        from streamgroups_spark.formats.unregistered import source_of_session

        return source_of_session(self.options, self.session)


def _of_application() -> type[DataSource]:
    # Spark pickles the class in the process that imports it for the application. A local class is pickled with its key, a
    # global one by its name.
    class ApplicationSource(AutomaticSource):
        session = uuid.uuid4().hex + uuid.uuid4().hex

    return ApplicationSource


if spark_features(_spark).replaces_sources:
    DefaultSource = _of_application()
