"""The source and the sink of a session of Spark Connect.

Registered by ``sg.register``. Source, sink and tasks run in Python processes of the Connect server, and the user's process
can be on another machine. So no process answers requests about the query. What needs them is rejected before the query
joins its group, as without a registration (``formats.unregistered``). The sink finds its source by the session of the
registration: both run on the machine of the server. Source: SEMANTICS S9, S13.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.formats.unregistered import check_unregistered
from streamgroups_spark.internals.connect import needs_classic
from streamgroups_spark.source.readers import RejectedStream
from streamgroups_spark.source.source_options import parse


class ConnectDataSource(StreamGroupsDataSource):
    """The format ``streamgroups`` in a session of Spark Connect."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query, or one that raises the error of an option that needs a classic session."""
        try:
            check_unregistered(parse(self.options, streaming=True), needs_classic)
        except InvalidOption as rejection:
            return RejectedStream(rejection)
        return super().streamReader(schema)
