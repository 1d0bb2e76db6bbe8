"""Sources without the user's process: of an application that has not called ``sg.register(spark)``, and of Spark Connect.

The former is created by ``pyspark_streamgroups``, which Spark registers by itself. ``sg.register`` registers the latter: source,
sink and tasks run in Python processes of the Connect server, and the user's process can be on another machine. The user's process then answers no requests: the source has neither the plan of its query, nor its checkpoint, nor the
event times of its tasks. Everything that needs them is rejected before the query joins its group. An exclusive query
and one with ``assign`` need none: a restart continues from the checkpoint, so that the missing commit of the last
batch repeats nothing. A sink finds its source by the key of the application: Spark runs both on the machine of the
driver, or of the server. Two flows of a declarative pipeline must not have one group: one of them would lack the records that the
other one has read. Source: SEMANTICS S9, S13.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals.connect import needs_classic
from streamgroups_spark.session import needs_registration
from streamgroups_spark.source.flow_of_session import FlowOfSession
from streamgroups_spark.source.readers import RejectedStream, StreamReader
from streamgroups_spark.source.source_options import SourceOptions, parse


def source_of_session(options: MutableMapping[str, str], session: str) -> StreamGroupsDataSource:
    """Returns the source of an application.

    Args:
        options: the options of the user.
        session: the key by which a sink of the application finds its source.
    """
    source = StreamGroupsDataSource(options)
    source.session = session  # type: ignore[misc]
    return source


def stream_reader(
    source: StreamGroupsDataSource, schema: StructType, connect_session: str | None
) -> DataSourceStreamReader:
    """Returns the reader of a streaming query, or one that raises the error of its options.

    Args:
        source: the source.
        schema: the columns of the query.
        connect_session: the id of the session of Spark Connect; ``None`` for a classic session.
    """
    try:
        options = parse(source.options, streaming=True)
        check_unregistered(options)
    except InvalidOption as rejection:
        return RejectedStream(rejection)
    reader = source.streamReader(schema)
    if connect_session is not None and isinstance(reader, StreamReader) and options.group_id is not None:
        reader.flow = FlowOfSession(source.session, connect_session, options.group_id)
    return reader


def check_unregistered(options: SourceOptions, needs: Callable[[str], InvalidOption] = needs_registration) -> None:
    """Rejects options that need the user's process.

    Args:
        options: the options of the stream.
        needs: returns the error for a feature.

    Raises:
        InvalidOption: with the first such option.

    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    >>> check_unregistered(parse({**options, "membership": "exclusive"}, streaming=True))
    >>> check_unregistered(parse(options, streaming=True))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The stream of group 'board' is shared, and a shared stream needs the registration of \
this library with the Spark session. Call sg.register(spark) once, before spark.readStream and df.writeStream. A declarative pipeline does not support \
it: use a program or a processor (docs/pipelines.rst). Or set membership=exclusive: one query then reads all partitions.
    """
    if options.is_shared:
        error = needs(f"The stream of group '{options.group_id}' is shared, and a shared stream")
        raise InvalidOption(
            error.what,
            remedy=f"{error.remedy} Or set membership=exclusive: one query then reads all partitions.",
            group=options.group_id,
        )
    given = {
        "maxDrift": options.limits.max_drift_ms is not None,
        "targetBatchTime": options.limits.target_batch_ms is not None,
        "includeWatermark": options.include_watermark,
        "importFrom": options.import_from is not None,
        "leaseTimeout": isinstance(options.lease_timeout_ms, int),
    }
    for name, is_given in given.items():
        if is_given:
            raise needs(f"Option '{name}'")


class ConnectDataSource(StreamGroupsDataSource):
    """The format ``streamgroups`` in a session of Spark Connect."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query, or one that raises the error of an option that needs a classic session."""
        try:
            check_unregistered(parse(self.options, streaming=True), needs_classic)
        except InvalidOption as rejection:
            return RejectedStream(rejection)
        return super().streamReader(schema)
