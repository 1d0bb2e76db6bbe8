"""The writer that ``sg.exactly_once`` and ``sg.repartition`` return.

Created by ``sinks.exactly_once``. It is PySpark's writer with another ``start()``. Until then nothing is registered,
deleted or fenced, so a writer that is never started has no effect. Spark searches the format of the sink in the active
session of the thread. The methods of PySpark's class return the object itself, so a chain of them remains this writer.
Source: PySpark's ``DataStreamWriter``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge.unstarted_checkpoint import clear_unstarted
from streamgroups_spark.internals.active_session import session_active
from streamgroups_spark.sinks.output_mode import check_output_mode

_CHECKPOINT = "checkpointLocation"
_ASYNCHRONOUS = "asyncProgressTracking"
#: Prepares the start of a query. The argument is its writer.
Preparation: TypeAlias = Callable[[DataStreamWriter], object]


class SinkWriter(DataStreamWriter):
    """Starts a query that writes to a sink of this library, in any thread.

    Args:
        df: the rows of the sink.
        output_format: the format of the sink.
        options: the options of the sink, with the checkpoint.
        preparations: what each start does before Spark starts the query, in this order.
    """

    def __init__(
        self, df: DataFrame, output_format: str, options: Mapping[str, str], preparations: Sequence[Preparation]
    ) -> None:
        super().__init__(df)
        self._checkpoint, self._preparations = options[_CHECKPOINT], tuple(preparations)
        super().format(output_format)
        super().options(**options)

    def start(self, *arguments: Any, **settings: Any) -> StreamingQuery:
        """See PySpark's ``DataStreamWriter.start``.

        Raises:
            InvalidOption: if a setting changes the sink or the checkpoint, or the broker does not allow the transaction
                timeout, or another active query has the ledger of the group in another sink.
            StreamGroupsError: if the cluster does not respond, or this user is not authorized to write.
        """
        with session_active(self._df.sparkSession):
            clear_unstarted(self._checkpoint)
            for prepare in self._preparations:
                prepare(self)
            return super().start(*arguments, **settings)

    def after_preparations(self, prepare: Preparation) -> SinkWriter:
        """Adds what each start does after the other preparations. Called by ``processors.building``."""
        self._preparations = (*self._preparations, prepare)
        return self

    def option(self, key: str, value: Any) -> SinkWriter:
        """See PySpark's ``DataStreamWriter.option``.

        Raises:
            InvalidOption: if the option is another checkpoint, or one of asynchronous progress tracking.
        """
        self._check(key, value)
        super().option(key, value)
        return self

    def options(self, **options: Any) -> SinkWriter:
        """See PySpark's ``DataStreamWriter.options``.

        Raises:
            InvalidOption: if an option is another checkpoint, or one of asynchronous progress tracking.
        """
        for name, value in options.items():
            self._check(name, value)
        super().options(**options)
        return self

    def outputMode(self, outputMode: str) -> SinkWriter:  # noqa: N803
        """See PySpark's ``DataStreamWriter.outputMode``.

        Raises:
            InvalidOption: for another mode than ``append``.
        """
        check_output_mode(outputMode)
        super().outputMode(outputMode)
        return self

    def format(self, source: str) -> NoReturn:
        """Rejects another sink: positions and output would no longer change together."""
        raise self._rejected(f"format('{source}')")

    def foreach(self, f: Any) -> NoReturn:
        """Rejects another sink. See :meth:`format`."""
        raise self._rejected("foreach")

    def foreachBatch(self, func: Any) -> NoReturn:
        """Rejects another sink. See :meth:`format`."""
        raise self._rejected("foreachBatch")

    def toTable(self, tableName: str, *_arguments: Any, **_settings: Any) -> NoReturn:  # noqa: N803
        """Rejects another sink. See :meth:`format`."""
        raise self._rejected(f"toTable('{tableName}')")

    def _check(self, name: str, value: object) -> None:
        if name.lower() == _CHECKPOINT.lower() and value != self._checkpoint:
            raise InvalidOption(
                f"The checkpoint of this writer is '{self._checkpoint}', but option '{name}' is '{value}'.",
                remedy="Leave the option out, or change the argument 'checkpoint'.",
            )
        if name.lower().removeprefix("_").startswith(_ASYNCHRONOUS.lower()):
            raise InvalidOption(
                f"Option '{name}' is set for a sink that writes exactly once. With asynchronous progress tracking the "
                "checkpoint does not name each batch.",
                remedy="Leave the option out, or use it with df.writeStream and a sink of Spark.",
            )

    def _rejected(self, call: str) -> InvalidOption:
        return InvalidOption(
            f"This writer has a sink already, and {call} would replace it.",
            remedy="Call start() for the sink of the writer, or df.writeStream for another one.",
        )
