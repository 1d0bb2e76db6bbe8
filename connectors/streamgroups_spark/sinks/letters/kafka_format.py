"""The format of a Kafka sink with dead letters.

``sinks.exactly_once`` registers one for each query. The sink of the dead letters travels with the class, so its
credentials appear in no option and no plan. Source: SEMANTICS X9.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import DataSourceStreamArrowWriter
from streamgroups_spark.sinks.kafka import KafkaStreamWriter
from streamgroups_spark.sinks.letters.of_batch import LetterOutput
from streamgroups_spark.sinks.sink_options import parse_sink


class KafkaLettersDataSource(DataSource):
    """A format for one query. ``exactly_once`` creates a subclass for each."""

    format_name: ClassVar[str] = "streamgroups-letters"
    session: ClassVar[str] = "alone"
    parallelism: ClassVar[int] = 1
    connections_file: ClassVar[str | None] = None
    dead_letters: ClassVar[LetterOutput]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query. Spark creates it in two processes for each batch."""
        prepare_python_worker()
        options = parse_sink(self.options, connections_file=self.connections_file)
        return KafkaStreamWriter(options, self.session, self.parallelism, self.dead_letters)
