"""Checks the requirements of Spark on this machine: Java, ``SPARK_HOME`` and the workers' Python.

``streamgroups_cli.doctor`` calls this module. Sources: Spark's overview (supported Java versions) and configuration
(``PYSPARK_PYTHON``, ``SPARK_HOME``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.doctor.check_results import CheckResult, ok, problem, warning

#: The latest Java that Spark 4.2 supports.
NEWEST_JAVA = 25


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """The Python that Spark's workers on this machine run.

    Args:
        command: the command that Spark runs.
        origin: the source of the command: ``spark.pyspark.python``, ``PYSPARK_PYTHON``, or ``PATH`` if neither is set.
        version: its version; None if it does not run.
        same: whether it is the Python of this process.
        missing: modules that workers require and it cannot import.
    """

    command: str
    origin: str
    version: str | None
    same: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkHome:
    """``SPARK_HOME``, if it is set.

    Args:
        path: its value.
        version: the version of Spark in it, or None.
    """

    path: str
    version: str | None


def judge_java(executable: str, version: str, release: int) -> CheckResult:
    """Checks whether Spark supports a Java that is new enough.

    Args:
        executable: its launcher.
        version: the full version, as in ``17.0.15``.
        release: its feature release, as in 17.

    >>> judge_java("/usr/bin/java", "21.0.2", 21).state.value
    'ok'
    """
    if release > NEWEST_JAVA:
        return warning(
            "java",
            f"{executable} is newer than the Java versions that Spark supports, up to {NEWEST_JAVA}.",
            f"If Spark does not start, use Java 17, 21 or {NEWEST_JAVA}.",
            version,
        )
    return ok("java", f"Found at {executable}.", version)


def judge_workers(worker: WorkerPython, driver_version: str) -> CheckResult:
    """Checks whether Spark's workers run the Python that the driver runs.

    Args:
        worker: the Python of the workers.
        driver_version: the version of this Python.

    >>> judge_workers(WorkerPython("python3", "PATH", "3.9.2"), "3.11.2").what
    'Workers will run python3 (from PATH), Python 3.9, but the driver runs Python 3.11: Spark rejects that.'
    """
    worker_python_name = f"{worker.command} (from {worker.origin})"
    use_this = "Set PYSPARK_PYTHON to the Python of this environment, or activate the environment."
    if worker.version is None:
        return problem("workers", f"Workers will run {worker_python_name}, which does not start here.", use_this)
    worker_python, driver_python = (".".join(version.split(".")[:2]) for version in (worker.version, driver_version))
    if worker_python != driver_python:
        what = f"Workers will run {worker_python_name}, Python {worker_python}, but the driver runs Python {driver_python}: Spark rejects that."
        return problem("workers", what, use_this, worker.version)
    if worker.missing:
        what = f"Workers will run {worker_python_name}, which lacks {', '.join(worker.missing)}."
        return problem("workers", what, use_this, worker.version)
    if worker.same:
        return ok("workers", f"Workers run this Python, {worker_python_name}.", worker.version)
    return ok(
        "workers", f"Workers run another Python with all required packages, {worker_python_name}.", worker.version
    )


def judge_spark_home(home: SparkHome, pyspark_version: str | None) -> CheckResult | None:
    """Checks whether ``SPARK_HOME`` contains the Spark version of PySpark; None if it does or is not set.

    >>> judge_spark_home(SparkHome("/opt/spark", "3.5.1"), "4.2.0").what
    'SPARK_HOME is /opt/spark, Spark 3.5.1; PySpark is 4.2.0.'
    """
    remedy = "Unset SPARK_HOME (PySpark includes Spark), or install the PySpark of that version."
    if home.version is None:
        return problem("spark", f"SPARK_HOME is {home.path}, which contains no Spark.", remedy)
    if pyspark_version is not None and home.version != pyspark_version:
        what = f"SPARK_HOME is {home.path}, Spark {home.version}; PySpark is {pyspark_version}."
        return problem("spark", what, remedy, home.version)
    return None
