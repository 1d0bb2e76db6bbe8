"""The Spark session of a worker: its settings, and the tasks that each processor can run at once.

Used by ``streamgroups worker run``. With ``spark-submit``, its settings are those of the command. Source: Spark's "Job
Scheduling": with ``FAIR``, the pools of several queries share the cores. But a running task is not interrupted: the long tasks of one
processor in all task slots would delay the others. So each processor has a share of them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from streamgroups_spark.internals.private_spark import ALL_CORES, configured_master

logger = logging.getLogger(__name__)

_MODE, _MASTER = "spark.scheduler.mode", "spark.master"
#: Progress bars would be mixed with the lines of the log.
_SETTINGS: Mapping[str, str] = {_MODE: "FAIR", "spark.ui.showConsoleProgress": "false"}


def worker_settings(slots: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the session.

    On this machine only, Spark has a task slot for each core, and at least one for each processor.

    Args:
        slots: the slots of the worker for processors.
        settings: the settings of the user.
    """
    found = {**_SETTINGS, **settings}
    if configured_master(found) == ALL_CORES:
        found[_MASTER] = f"local[{max(slots, os.cpu_count() or 1)}]"
    return found


def share_of_tasks(spark: SparkSession, slots: int) -> int:
    """Returns the number of tasks that each processor can run at once.

    Args:
        spark: the session of the worker.
        slots: the slots of the worker for processors.
    """
    return max(1, spark.sparkContext.defaultParallelism // slots)


def check_scheduler(spark: SparkSession) -> None:
    """Logs a warning if the scheduler is not fair."""
    if spark.sparkContext.getConf().get(_MODE, "FIFO") != "FAIR":
        logger.warning("%s is not FAIR, so a long stage of one processor delays the others.", _MODE)
