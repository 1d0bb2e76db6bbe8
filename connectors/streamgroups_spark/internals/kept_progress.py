"""The setting of Spark for the number of batches whose progress a query keeps.

Used where ``lastProgress`` and ``recentProgress`` are necessary. Source: Spark's ``ProgressReporter.addNewProgress``, which removes a
report as soon as there are as many as the setting: with 1 it keeps none, and with 0 the query fails.
"""

from __future__ import annotations

from streamgroups.errors import InvalidOption

RETENTION, DEFAULT_RETENTION = "spark.sql.streaming.numRecentProgressUpdates", 100
#: The smallest value with which Spark keeps the progress of the last batch.
MIN_RETENTION = 2


def no_progress(what: str) -> InvalidOption:
    """Returns the error of a function or an option that needs the progress of the last batch.

    Args:
        what: the function or option.

    >>> print(no_progress("sg.reports.record_time"))
    spark.sql.streaming.numRecentProgressUpdates is below 2, so Spark keeps no progress of finished batches, which \
sg.reports.record_time needs. Set it to at least 2. Its default value is 100.
    """
    return InvalidOption(
        f"{RETENTION} is below {MIN_RETENTION}, so Spark keeps no progress of finished batches, which {what} needs.",
        remedy=f"Set it to at least {MIN_RETENTION}. Its default value is {DEFAULT_RETENTION}.",
    )
