"""``sg.with_event_time(df, "ts", ...)``: sets Spark's watermark of a stream to the minimum over its partitions.

Called by users on the driver, on a DataFrame of the source ``streamgroups``. Spark's event-time operators follow this
watermark: windows, ``dropDuplicatesWithinWatermark``, joins, ``transformWithState``. Source: SEMANTICS W2, W3, W8-W11,
W14; docs/architecture.rst, "Event time"; Spark's ``WatermarkTracker``, which takes the minimum over the watermark nodes
of a query.

::

    records ────────────┐
                        ├ union ─ withWatermark ─ only records ─┐
    punctuations ──┬────┘                                       ├ union ─▶ the DataFrame that is returned
                   └─────────────── withWatermark ─ nothing ────┘

The right node receives only punctuations, so its watermark is that of this library. The left node receives them too, so
it never holds back the minimum, not even while all partitions are idle, or with ``importFrom``. The maximum of its
records is later, so the minimum of both nodes is the watermark of this library. Both nodes have the delay of the
stream, because ``dropDuplicatesWithinWatermark`` stores a record for that time. A punctuation is ahead of the watermark
by this delay.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.cursors.argument_checks import check_group_name
from streamgroups.dlq.letter import COLUMN as LETTER_COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.imported_watermark import check_imports
from streamgroups.event_time.settings import TIME_OPTIONS, time_settings
from streamgroups.event_time.violations import OnViolation, check_until
from streamgroups.groups.subscription import Subscription, Topics
from streamgroups_spark.bridge.plan import FORMAT, analyzed, columns_of, leaves, operators, source_name, source_options
from streamgroups_spark.bridge.punctuation_options import delay_in_spark_ms, options_of
from streamgroups_spark.bridge.user_process import SEEN, channel_of
from streamgroups_spark.dlq.failure_column import check_letters, is_good
from streamgroups_spark.event_time.split_late import LateRule, check_watermark_column, split
from streamgroups_spark.frames.columns import check_timestamp, with_event_times
from streamgroups_spark.internals.connect import reject_in_flow
from streamgroups_spark.session import require_registered
from streamgroups_spark.source.columns import EVENT_TIME
from streamgroups_spark.source.observed_times import reporting
from streamgroups_spark.source.query_checks import check_state
from streamgroups_spark.source.source_options import parse

_MARK = "__is_punctuation"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
#: The time columns of the source.
_READ = ("timestamp", EVENT_TIME)
#: Operations that keep each row of the source. Behind any other, a row that the source has read can be missing.
_KEEPS_ROWS = frozenset(
    (
        "CollectMetrics",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    )
)
#: The columns that contain the position of a record.
_PLACE = ("topic", "partition", "offset")


def with_event_time(
    df: DataFrame,
    column: str,
    *,
    watermark_delay: str | None = None,
    partition_idle_timeout: str | None = None,
    emit_every: str | None = None,
    import_from: str | None = None,
    on_violation: str | None = None,
    until: str | None = None,
) -> DataFrame:
    """Sets the watermark of a stream to the minimum over its partitions, except idle ones (SEMANTICS W2, W3).

    A missing argument is taken from the options of the source (SEMANTICS W11). ``"none"`` disables such an option.
    If the source has the option ``watermarkHeader``, producers advance the watermark too (SEMANTICS W15). Then no argument is
    required.

    Args:
        df: created from one ``format("streamgroups")`` with ``membership=exclusive``, row by row. Bounded data are returned
            without a watermark, because Spark ignores it (SEMANTICS W17). A stream still needs
            ``topic``, ``partition`` and ``offset``, unless the event time is the source's own column ``timestamp`` or
            ``eventTime``, and no operation before removes rows. Rows that a filter, a join with a table or
            ``dropDuplicates`` has removed do not advance the watermark, nor do rows with a dead letter.
        column: the event time, a timestamp. Rows with null do not advance the watermark. A time more than 142,599 years before
            or after 1970 is replaced by null, because Spark's windows of such a time can fail.
        watermark_delay: a duration: the delay of the watermark behind the latest record of a partition: ``"10s"``. A negative delay
            is ahead of it. Option ``watermarkDelay``.
        partition_idle_timeout: a duration: how long a partition without available records holds back the watermark. Option
            ``partitionIdleTimeout``.
        emit_every: how often the watermark advances: ``"10 records"``, or ``"5s"`` of event time. Option ``emitEvery``.
        import_from: the ``group.id`` whose watermark this stream follows. The queries of that group can run in any
            application, and use :func:`with_event_time`, or :func:`windows` with ``time="group"``. Option ``importFrom``.
        on_violation: how records before the watermark are handled. ``keep``: Spark's operators drop them if they are late.
            ``drop``: they are dropped, and so are rows without an event time. ``adjust``: their event time is set to the
            watermark if they are valid until later, and otherwise they are dropped. Both need the option
            ``includeWatermark=true`` of the source, and count the records. :func:`split_late` has the same argument and
            also returns them. Option ``onViolation``.
        until: with ``adjust``: the column with the end of a record's validity, a timestamp.

    Returns:
        The same rows and columns, with ``column`` under Spark's watermark. Punctuations are filtered out.

    Raises:
        InvalidOption: for each invalid argument or option. The error contains its name and the remedy.

    Example::

        flights = sg.with_event_time(flights, "timestamp", watermark_delay="10s", partition_idle_timeout="30s")
        flights.groupBy(F.window("timestamp", "5 minutes")).count()
    """
    given = {
        "watermarkDelay": watermark_delay,
        "partitionIdleTimeout": partition_idle_timeout,
        "emitEvery": emit_every,
        "importFrom": import_from,
        "onViolation": on_violation,
    }
    reject_in_flow(df, "sg.with_event_time")
    source = _source(df)
    parsed = parse(source, streaming=df.isStreaming)
    if df.isStreaming:
        require_registered("sg.with_event_time", df)
        check_state(parsed, {"sg.with_event_time"})
    check_timestamp(df, column)
    check_letters(df)
    _check_plan(df)
    options = {**options_of_time(source), **{name: value for name, value in given.items() if value is not None}}
    settings = time_settings({}, options)
    if settings.import_from is not None:
        check_group_name(settings.import_from)
    _check_policy(df, settings.on_violation, until)
    read_column = _read_column(df, column)
    df = with_event_times(df, column)
    if not df.isStreaming:
        # Spark ignores watermarks of bounded data: no record is late.
        return _on_time(df, column, settings.on_violation, until)
    group_id = str(parsed.group_id)
    check_imports(group_id, {group_id: settings})
    reported_as = uuid.uuid4().hex[:12]
    if read_column is None:
        df = _with_reports(df, column, reported_as, parsed.subscription)
    asserted = options_of(group_id, options, reported_as=reported_as, read_column=read_column)
    timed = _punctuated(df, column, asserted, delay_in_spark_ms(settings))
    return _on_time(timed, column, settings.on_violation, until)


# ---- the plan --------------------------------------------------------------------------------------------------------


def _punctuated(df: DataFrame, column: str, options: Mapping[str, str], delay_ms: int) -> DataFrame:
    times = df.sparkSession.readStream.format("streamgroups-time").options(**options).load()
    row = [_filled(name, column, df.schema) for name in df.columns]
    punctuations = times.select(*row, F.lit(True).alias(_MARK))
    # The condition contains the event time and cannot be split, or Spark would filter before it reads the watermark.
    # It also contains a nondeterministic part, which is always true, because Spark moves no other filter past it.
    # Otherwise a filter of the user, or the null check of a join, would run before the watermark. It would remove the
    # punctuations, whose other columns are null.
    records = ~(F.col(_MARK) & F.col(column).isNotNull()) & (F.spark_partition_id() >= 0)
    both = df.withColumn(_MARK, F.lit(False)).union(punctuations)
    left, right = (
        it.withWatermark(column, f"{delay_ms} milliseconds").where(records).drop(_MARK) for it in (both, punctuations)
    )
    return left.union(right)


def _filled(name: str, column: str, schema: StructType) -> Column:
    return (F.col("time") if name == column else F.lit(None).cast(schema[name].dataType)).alias(name)


def _with_reports(df: DataFrame, column: str, reported_as: str, subscription: Subscription) -> DataFrame:
    """Adds the report of event times to the computed column."""
    missing = [name for name in _PLACE if name not in df.columns]
    if missing:
        raise InvalidOption(
            f"The DataFrame has no column {', '.join(map(repr, missing))}. Per-partition watermarks of "
            f"column '{column}' need it.",
            remedy="Call with_event_time before a select that drops them.",
        )
    only = subscription.names if isinstance(subscription, Topics) else ()
    topic = only[0] if len(only) == 1 else None
    counts = is_good(df) if LETTER_COLUMN in df.columns else None
    return df.withColumn(
        column, reporting(F.col(column), reported_as, channel_of(df.sparkSession, SEEN), topic, counts)
    )


def _on_time(timed: DataFrame, column: str, policy: OnViolation, until: str | None) -> DataFrame:
    return timed if policy is OnViolation.KEEP else split(timed, LateRule(column, None, policy, until))[0]


# ---- checks ----------------------------------------------------------------------------------------------------------


def options_of_time(source: Mapping[str, str]) -> dict[str, str]:
    """Returns the event-time options of the source, by their case-sensitive names."""
    names = {name.lower(): name for name in TIME_OPTIONS}
    return {names[name.lower()]: value for name, value in source.items() if name.lower() in names}


def _source(df: DataFrame) -> dict[str, str]:
    """Returns the options of the only source of the DataFrame. Tables that a stream is joined with are not counted."""
    found = _sources(df)
    names = [source_name(leaf) for leaf in found]
    if names != [FORMAT]:
        raise InvalidOption(
            f"The DataFrame reads from {', '.join(sorted(names))}. It must read exactly one stream of "
            "format streamgroups.",
            remedy="Call with_event_time on each stream, before a join or union.",
        )
    return source_options(found[0])


def _sources(df: DataFrame) -> list[Any]:
    found = list(leaves(analyzed(df)))
    return [leaf for leaf in found if leaf.isStreaming()] if df.isStreaming else found


def _check_plan(df: DataFrame) -> None:
    policy = str(df.sparkSession.conf.get(_POLICY, "min"))
    if policy.lower() != "min":
        raise InvalidOption(f"{_POLICY} is '{policy}'.", remedy="Set it to min, its default value.")
    if "EventTimeWatermark" in operators(analyzed(df)):
        raise InvalidOption("The DataFrame already has a watermark.", remedy="Remove the call of withWatermark.")


def _check_policy(df: DataFrame, policy: OnViolation, until: str | None) -> None:
    check_until(policy, until)
    if until is not None:
        check_timestamp(df, until)
    if policy is not OnViolation.KEEP:
        check_watermark_column(df, f"sg.with_event_time with on_violation='{policy.value}'")


def _read_column(df: DataFrame, column: str) -> str | None:
    """Returns the source column with the unchanged event time.

    ``None`` if its tasks cannot report it, or would report it for a row that does not advance the watermark.
    """
    plan = analyzed(df)
    if operators(plan) - _KEEPS_ROWS or LETTER_COLUMN in df.columns:
        return None
    own, output = columns_of(next(leaves(plan))), columns_of(plan)
    if not {*_PLACE} <= {*own.values()}:
        return None
    found = next((own.get(expression) for expression, name in output.items() if name == column), None)
    return found if found in _READ else None
