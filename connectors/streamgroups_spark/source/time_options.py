"""The event-time options of the sources of a DataFrame, which are defaults for the functions of the query.

Called by ``windows.api`` and ``event_time.split_late`` on the driver. Source: SEMANTICS W11; StreamInsight, where
settings of the adapter are defaults and settings of the query's binding override them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups_spark.source.read_options import has_event_time, read_options


def source_policy(df: DataFrame) -> OnViolation:
    """Returns the option ``onViolation`` of the sources of a stream, or of bounded data.

    ``keep`` after ``sg.with_event_time``, which has applied the option.

    Raises:
        InvalidOption: if the sources have different values.
    """
    if has_event_time(df):
        return OnViolation.KEEP
    found = {it.on_violation for it in read_options(df)}
    if len(found) > 1:
        raise InvalidOption(
            f"The sources have different values of 'onViolation': {', '.join(sorted(it.value for it in found))}.",
            remedy="Set the same value, or pass the argument 'on_violation'.",
        )
    return found.pop() if found else OnViolation.KEEP
