"""Whether the last batch of a query is done when the query stops, of which Spark informs no source.

Used by ``micro_batches`` for each query that stops, and for a batch that is in flight for longer than ``leaseTimeout``. The user's own process can see it in Spark's memory, whatever file system the checkpoint is on
(``active_queries``). Where that process has ended before the query, the checkpoint says it (``checkpoint_log``). Source: SEMANTICS S2.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from streamgroups.errors import StreamGroupsError
from streamgroups_spark.internals.checkpoint_log import CommitLog
from streamgroups_spark.internals.rpc import ask
from streamgroups_spark.source.query_facts import FinishedRequest

logger = logging.getLogger(__name__)


class LastBatch:
    """The last batch of one query.

    Args:
        session: of the user's own process.
        process_ids: of the source, as in its :class:`~streamgroups_spark.source.query_facts.QueryRequest`.
        checkpoint: the query's; ``None`` if it is not known.
    """

    def __init__(self, session: str, process_ids: frozenset[int], checkpoint: str | None) -> None:
        self._session, self._process_ids, self._checkpoint = session, process_ids, checkpoint

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Whether the batch that ends at ``offset`` is done; ``False``, with a warning, if that is not known."""
        try:
            for answer in ask(self._session, FinishedRequest(self._process_ids, offset)):
                return bool(answer)
        except StreamGroupsError as e:
            logger.debug("The process that started the query does not report whether its last batch is finished: %s", e)
        if self._checkpoint is not None:
            return CommitLog(self._checkpoint).has_finished(offset)
        logger.warning(
            "The checkpoint is not available, so the last batch of a stopped query is not committed and "
            "will be read again."
        )
        return False
