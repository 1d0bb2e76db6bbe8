"""The settings of the Spark session of a worker.

Used by ``streamgroups worker run``. With ``spark-submit``, its settings are those of the command. Source: Spark's "Job
Scheduling": with ``FAIR``, the pools of several queries share the cores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_MODE = "spark.scheduler.mode"
#: Progress bars would be mixed with the lines of the log.
WORKER_SETTINGS: Mapping[str, str] = {_MODE: "FAIR", "spark.ui.showConsoleProgress": "false"}


def check_scheduler(spark: SparkSession) -> None:
    """Logs a warning if the scheduler is not fair."""
    if spark.sparkContext.getConf().get(_MODE, "FIFO") != "FAIR":
        logger.warning("%s is not FAIR, so a long stage of one processor delays the others.", _MODE)
