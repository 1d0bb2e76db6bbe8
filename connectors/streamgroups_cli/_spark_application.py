"""The Spark application of ``streamgroups doctor --executors``.

``streamgroups_cli.doctor`` imports it. The settings are those of ``spark-submit`` and ``spark-defaults.conf``, as for a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamgroups_cli.spark_settings import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The setting with the Python of the workers.
WORKER_PYTHON = "spark.pyspark.python"
_NAME = "streamgroups-doctor"
#: The longest text of an error of Spark in a result.
_LONGEST = 500


@contextmanager
def spark_application(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts an application, and stops it at the end."""
    with spark_session(_NAME, {"spark.ui.enabled": "false", **settings}) as spark:
        spark.sparkContext.setLogLevel("OFF")
        # Only spark-submit reads this setting. PySpark itself reads PYSPARK_PYTHON.
        spark.sparkContext.pythonExec = spark.conf.get(WORKER_PYTHON, "") or spark.sparkContext.pythonExec
        yield spark


def explained_failure(error: Exception) -> tuple[str, str]:
    """Returns the text of a result and its remedy, for an error of Spark.

    >>> explained_failure(RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10."))
    ('No task ran: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10.', 'Set PYSPARK_PYTHON or \
spark.pyspark.python to a Python of the same release as the driver on every host.')
    """
    text = str(error)
    program = re.search(r'Cannot run program "([^"]*)"[^\n]*', text)
    # Spark puts the error of a Python process at the end of its traceback.
    named = re.search(r"\[[A-Z_]{5,}\][^\n]*", text) or program
    reason = (
        named[0] if named else next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    )
    failed_run = f"No task ran: {reason[:_LONGEST].rstrip('.')}."
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            failed_run,
            "Set PYSPARK_PYTHON or spark.pyspark.python to a Python of the same release as the driver on every host.",
        )
    if program is not None:
        remedy = "Set PYSPARK_PYTHON or spark.pyspark.python to a Python that exists on every host."
        if not program[1].startswith("/") and "/" in program[1]:
            remedy += " A relative path needs a packed environment: --archives environment.tar.gz#environment."
        return failed_run, remedy
    return failed_run, "Check --master and --conf, and the logs of the Spark application and of its executors."
