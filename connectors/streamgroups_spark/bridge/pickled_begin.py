"""The begin of the output of a batch: the moment at which Spark pickles its writer to the tasks.

Spark creates the writer of a batch in two processes of the driver. It pickles one to the tasks, and calls ``commit`` of the
other. It has no call for the begin of a batch. Used by ``sinks.base`` and ``sinks.kafka_batch``. Source: Spark's
``DataSourceStreamWriter``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from streamgroups_spark.internals.pickle_checks import Shipped


class BegunOnPickle(Shipped):
    """A writer whose output begins when Spark pickles it to the tasks."""

    def __getstate__(self) -> dict[str, Any]:
        """Begins the output on the driver."""
        self._begin_once()
        return self.__dict__

    @abstractmethod
    def _begin_once(self) -> None:
        """Begins the output, if it has not begun: Spark can pickle the writer again."""
