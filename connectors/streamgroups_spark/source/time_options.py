"""The event-time options of the sources of a DataFrame, which are defaults for the functions of the query.

Called by ``windows.api`` and ``event_time.split_late`` on the driver. Source: SEMANTICS W11; StreamInsight, where
settings of the adapter are defaults and settings of the query's binding override them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.internals.plan import analyzed, leaves, source_name, source_options
from streamgroups_spark.source.options import parse


def source_policy(df: DataFrame) -> OnViolation:
    """Returns the option ``onViolation`` of the sources of a stream, or of bounded data.

    ``keep`` after ``sg.with_event_time``, which has applied the option.

    Raises:
        InvalidOption: if the sources have different values.
    """
    found_leaves = list(leaves(analyzed(df)))
    if any(source_name(leaf) == TimeDataSource.name() for leaf in found_leaves):
        return OnViolation.KEEP
    options = [source_options(leaf) for leaf in found_leaves if source_name(leaf) == "streamgroups"]
    found = {parse(it, streaming=df.isStreaming).on_violation for it in options}
    if len(found) > 1:
        raise InvalidOption(
            f"The sources have different values of 'onViolation': {', '.join(sorted(it.value for it in found))}.",
            remedy="Set the same value, or pass the argument 'on_violation'.",
        )
    return found.pop() if found else OnViolation.KEEP
