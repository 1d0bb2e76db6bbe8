"""The Spark session of a worker.

Called by ``streamgroups worker run``. With ``spark-submit``, its settings are those of the command. Source: Spark's "Job
Scheduling": with ``FAIR``, the pools of several queries share the cores.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_MODE = "spark.scheduler.mode"
#: Progress bars would be mixed with the lines of the log.
_DEFAULTS = {_MODE: "FAIR", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def worker_session(name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Creates the session of a worker, and stops it at the end.

    Args:
        name: the name of the application.
        settings: settings of Spark.
    """
    builder = SparkSession.builder.appName(name)
    for setting, value in {**_DEFAULTS, **settings}.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    try:
        if spark.sparkContext.getConf().get(_MODE, "FIFO") != "FAIR":
            logger.warning("%s is not FAIR, so a long stage of one processor delays the others.", _MODE)
        yield spark
    finally:
        spark.stop()
