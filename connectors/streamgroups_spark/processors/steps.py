"""Applies the steps of a processor to a DataFrame, in their order.

Called by ``building`` for a stream, and by ``previewing`` for bounded data. SQL and functions of the user receive no row with a dead
letter, and lose none. A step that needs a watermark has one without delay, unless the processor sets another one. Source:
SEMANTICS P1, P4, S9, W1.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.processors.arguments import arguments_of
from streamgroups.processors.letters_of_sql import keeps_letters
from streamgroups.processors.processor import FunctionCall, Processor, Sql, Step
from streamgroups_spark.bridge.plan import analyzed, read_streams
from streamgroups_spark.decoding.decode_encode import decode, encode
from streamgroups_spark.dlq.safely import safely
from streamgroups_spark.event_time.with_event_time import with_event_time
from streamgroups_spark.frames.columns import column, delay_ms_of
from streamgroups_spark.internals.private_spark import view_of
from streamgroups_spark.joins.join import join
from streamgroups_spark.processors.user_functions import Loader, transformed
from streamgroups_spark.state.chains import results_before
from streamgroups_spark.state.dedup import dedup
from streamgroups_spark.state.stateful import stateful
from streamgroups_spark.windows.windows import windows

_FUNCTIONS: Mapping[str, Any] = {
    "decode": decode,
    "dedup": dedup,
    "encode": encode,
    "join": join,
    "safely": safely,
    "stateful": stateful,
    "windows": windows,
    "with_event_time": with_event_time,
}
#: The rows of the step before, in SQL.
_INPUT = "input"
#: A view belongs to a session, which several processors can share.
_views = threading.Lock()


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a processor.

    Args:
        processor: the processor.
        instance: its instance.
        member: the number of the member.
        checkpoint: the checkpoint.
        loader: loads functions, registries and files.
    """

    processor: Processor
    instance: str
    member: int
    checkpoint: str
    loader: Loader = field(default_factory=Loader)

    @property
    def group_id(self) -> str:
        """The group of the processor."""
        return self.processor.group_id(self.instance)


def rows_of(run: Run, df: DataFrame) -> DataFrame:
    """Returns the rows of the sink.

    Args:
        run: the run.
        df: the records of the source, as a stream or as bounded data.

    Raises:
        InvalidOption: if a step rejects its argument, or the query keeps state in Spark. The error names the step.
    """
    rows = _Rows(run, df)
    for number, step in enumerate(run.processor.steps):
        if step is run.processor.repartition:
            continue
        try:
            rows.apply(step)
        except InvalidOption as e:
            raise e.with_text(f"steps[{number}] ({_name(step)}): {e.what}", e.remedy) from e
    found = rows.with_letters()
    if found.isStreaming:
        _reject_state_of_spark(run.processor, found)
    return found


def _name(step: Step) -> str:
    if isinstance(step, FunctionCall):
        return step.name
    return "sql" if isinstance(step, Sql) else f"function {step.reference}"


class _Rows:
    """The rows after some steps, and the dead letters that later steps do not receive."""

    def __init__(self, run: Run, df: DataFrame) -> None:
        self._run, self._df = run, df
        self._letters: list[DataFrame] = []
        #: The step with state whose output contains dead letters.
        self._emits: str | None = None

    def apply(self, step: Step) -> None:
        """Applies a step."""
        if isinstance(step, FunctionCall):
            self._call(step)
        elif self._emits is None:
            self._set_letters_apart()
            self._df = self._transformed(step)
        else:
            self._df = self._with_letters_of_state(step)

    def with_letters(self) -> DataFrame:
        """Returns all rows, with the dead letters."""
        found = self._df
        for earlier in self._letters:
            found = found.unionByName(earlier, allowMissingColumns=True)
        return found

    def _call(self, step: FunctionCall) -> None:
        if step.state_name is not None and self._emits is None:
            # Otherwise two branches of the plan would contain the operator, if a step after it sets letters apart.
            self._set_letters_apart()
        arguments = arguments_of(step.name, step.arguments, self._run.loader)
        df, arguments = _with_watermark(self._run.processor, step, self._df, arguments)
        self._df = _FUNCTIONS[step.name](df, **arguments)
        if step.state_name is not None and COLUMN in self._df.columns:
            self._emits = step.name

    def _set_letters_apart(self) -> None:
        if COLUMN in self._df.columns:
            self._letters.append(self._df.where(column(COLUMN).isNotNull()).select(COLUMN))
            self._df = self._df.where(column(COLUMN).isNull()).drop(COLUMN)

    def _transformed(self, step: Step) -> DataFrame:
        assert not isinstance(step, FunctionCall)
        if isinstance(step, Sql):
            return _selected(step.text, self._df)
        return transformed(self._df, step.reference, self._run.loader)

    def _with_letters_of_state(self, step: Step) -> DataFrame:
        """The step receives the dead letters of an operator with state: setting them apart would run the operator twice."""
        found = self._transformed(step)
        if COLUMN in found.columns and (not isinstance(step, Sql) or keeps_letters(step.text)):
            return found
        raise InvalidOption(
            f"The step can lose the dead letters of the step '{self._emits}' before it.",
            remedy=f"Write SELECT ..., {COLUMN} FROM input, with no other clause than a WHERE that begins with "
            f"'{COLUMN} IS NOT NULL OR'. A function returns the column '{COLUMN}' too. Or remove 'dead_letters' from that step.",
        )


def _with_watermark(
    processor: Processor, step: FunctionCall, df: DataFrame, arguments: dict[str, Any]
) -> tuple[DataFrame, dict[str, Any]]:
    """Sets a watermark without delay for a step that needs one, unless the processor has another one."""
    on = arguments.get("on")
    if step.name not in ("windows", "join") or on not in df.columns or processor.source.has_watermark:
        return df, arguments
    if results_before(df) is not None or (df.isStreaming and delay_ms_of(df, on) is not None):
        return df, arguments
    if step.name == "join":
        return df.withWatermark(on, "0 seconds"), arguments
    if arguments.get("boundary", "eventTime") != "eventTime":
        return df, arguments
    return df, {"watermark_delay": "0s", **arguments}


def _selected(text: str, df: DataFrame) -> DataFrame:
    with _views, view_of(df, _INPUT):
        try:
            found = df.sparkSession.sql(text)
        except Exception as e:
            raise InvalidOption(
                f"Spark rejects the SQL: {str(e).strip().splitlines()[0]}",
                remedy=f"Columns of input: {', '.join(df.columns)}.",
            ) from e
    if df.isStreaming and not found.isStreaming:
        raise InvalidOption("The SQL does not read the rows of the step before.", remedy="Write SELECT ... FROM input.")
    return found


def _reject_state_of_spark(processor: Processor, df: DataFrame) -> None:
    if processor.checkpoint is not None and processor.membership == "exclusive":
        return
    operators = sorted({it for stream in read_streams(analyzed(df)) for it in stream.operators})
    if operators:
        raise InvalidOption(
            f"The processor '{processor.name}' uses operators of Spark with state ({', '.join(operators)}). They keep it in a "
            "checkpoint, and each run of a processor has a new one.",
            remedy="Use sg.windows, sg.stateful, sg.dedup or sg.join, whose state follows its partition. Or set 'checkpoint' on "
            "shared storage, and 'membership: exclusive' in the source.",
        )
