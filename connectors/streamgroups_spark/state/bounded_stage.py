"""An operator with state over a batch DataFrame, as a function of ``mapInArrow``, in the stage that reads.

Created by ``state.operator_plan`` on the driver, and pickled into Python workers. A batch read has no group, no state
location and no plan of states: each task reads whole partitions, and the operator runs from their first record to their
last. Source: SEMANTICS W17; Spark's ``DataFrame.mapInArrow``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamgroups_operators.bounded import BoundedRecords
from streamgroups_operators.operator import StatefulOperator
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.state.stage import to_output


class BoundedStage(Shipped):
    """Runs an operator over the records of a task.

    Args:
        operator: the operator.
        topic: the topic of all records; ``None`` if several topics are read.
        now_ms: the time of all records by the clock.
    """

    def __init__(self, operator: StatefulOperator, topic: str | None, now_ms: int) -> None:
        self._operator, self._topic, self._now_ms = operator, topic, now_ms
        self.__name__ = f"streamgroups_bounded:{operator.name}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        records = BoundedRecords(self._operator, self._topic, self._now_ms)
        for batch in batches:
            if batch.num_rows:
                for table in records.add(batch):
                    yield from to_output(table, self._operator.output)
        for table in records.finish():
            yield from to_output(table, self._operator.output)
