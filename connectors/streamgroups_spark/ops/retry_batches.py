"""``sg.supervision.retry_batches(write)``: calls a function of ``foreachBatch`` again after it has failed, in the same run of the query.

Called by users when they start a query. :mod:`streamgroups.supervision.batch_retries` decides about attempts. Spark
computes the batch again from the same offsets for each of them, as for each action on the batch. Source: Spark's
``ForeachBatchSink`` and ``StreamExecution.stop``, which ends the query before it interrupts the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps

from pyspark.sql import DataFrame

from streamgroups.errors import InvalidOption
from streamgroups.supervision.batch_retries import FailQuery, after_failure
from streamgroups_spark.bridge.user_process import is_running
from streamgroups_spark.internals.connect import require_classic
from streamgroups_spark.ops.exception_causes import cause_of
from streamgroups_spark.ops.interruptible_wait import wait_unless_stopping

logger = logging.getLogger(__name__)

#: How long a query that is being stopped waits for the next attempt at most.
_POLL_S = 0.2


def retry_batches(
    write: Callable[[DataFrame, int], None], *, max_attempts: int = 3
) -> Callable[[DataFrame, int], None]:
    """Creates a function for ``foreachBatch`` that calls another one until it succeeds.

    The query keeps its process, its membership and its partitions, so another attempt costs only the batch. Without this
    function the query fails, and a restart (:func:`supervise`) takes a second or more. If all attempts fail, the query fails
    with the last error. The waits between attempts are 0.2 s, 0.4 s and so on, at most 10 s.

    An attempt can have written a part of the batch before it failed, as with a restart. A function with ``sg.ledgers.ledger`` skips
    a batch that is written. Errors of this library that are not transient, such as ``fenced_batch``, fail the query at once.

    Args:
        write: the function. It receives the same batch in each attempt.
        max_attempts: the maximum number of calls.

    Raises:
        InvalidOption: if ``max_attempts`` is below 1, or the session is one of Spark Connect.

    Example::

        def write(batch, batch_id):
            batch.write.format("jdbc").options(**database).mode("append").save()

        departures.writeStream.foreachBatch(sg.supervision.retry_batches(write)).option("checkpointLocation", "/data/departures").start()
    """
    if max_attempts < 1:
        raise InvalidOption(f"max_attempts is {max_attempts}.", remedy="It must be at least 1.")

    @wraps(write)
    def retried(batch: DataFrame, batch_id: int) -> None:
        require_classic(batch, "sg.supervision.retry_batches")
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        attempts = 0
        while True:
            try:
                return write(batch, batch_id)
            except Exception as e:
                attempts += 1
                failure, is_stopping = cause_of(e), not is_running(query_id)
                decision = after_failure(failure, attempts, max_attempts)
                if is_stopping or isinstance(decision, FailQuery):
                    if attempts > 1 and isinstance(decision, FailQuery):
                        logger.error("Batch %d fails: %s. %s", batch_id, decision.why, failure.what)
                    raise
                message = "Batch %d runs again in %.1f s, because attempt %d of %d has failed: %s"
                logger.warning(message, batch_id, decision.after_ms / 1_000, attempts, max_attempts, failure.what)
                logger.debug("Traceback of the failure:", exc_info=e)
                if not wait_unless_stopping(
                    decision.after_ms / 1_000, lambda: not is_running(query_id), piece_s=_POLL_S
                ):
                    raise

    return retried
