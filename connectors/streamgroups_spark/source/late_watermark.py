"""The watermark by which Spark drops late rows of the batch that runs, from the checkpoint of the query.

Called by ``source.running_query`` when Spark plans the tasks of a batch, if the option ``includeWatermark`` is set. Spark
passes no watermark to a source. But it writes the watermark of each batch to ``offsets/<batch id>`` before it plans its
tasks, with every trigger. A batch that runs again after a restart has the same log. Source: SEMANTICS W7, X8; Spark's
``MicroBatchExecution.constructNextBatch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroups.errors import QueryUnknown, StateUnreachable, StreamGroupsError
from streamgroups_kafka.client.jaas import redacted
from streamgroups_spark.bridge.checkpoint_log import CommitLog


def late_watermark_ms(group_id: str, checkpoint: str | None, end: Mapping[str, Any]) -> int:
    """Returns the watermark in milliseconds since the epoch; 0 before the first one.

    Args:
        group_id: the group of the source.
        checkpoint: the checkpoint of the query; ``None`` if it is unknown.
        end: the end offset of the source in the batch.

    Raises:
        QueryUnknown: if the checkpoint is unknown.
        StateUnreachable: if the checkpoint cannot be read, or contains another batch.
    """
    if checkpoint is None:
        raise QueryUnknown(
            f"The checkpoint of the query of group '{group_id}' is unknown, so the column 'watermark' has no value.",
            remedy="Call sg.register(spark) in the process that starts the query, and run one query for each group.",
            group=group_id,
        )
    try:
        return CommitLog(checkpoint).late_watermark_ms(end)
    except (OSError, ValueError, StreamGroupsError) as e:
        raise StateUnreachable(
            f"The watermark of group '{group_id}' cannot be read from the checkpoint '{redacted(checkpoint, ())}': "
            f"{redacted(str(e), ())}.",
            remedy="Use a checkpoint that the driver can read, a path or a URI, without asynchronous progress tracking. Or "
            "leave out includeWatermark.",
            group=group_id,
        ) from None
