"""Checks the requirements of Spark and the embedded broker: Java, the workers' Python, module names and memory.

``streamgroups_cli.doctor`` calls this module. Sources: Spark's overview (supported Java versions) and configuration
(``PYSPARK_PYTHON``, ``SPARK_HOME``), Spark's ``JavaModuleOptions`` (it starts no JVM without ``jdk.incubator.vector``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroups.doctor.check_results import Finding, ok, problem, warning

#: The latest Java that Spark 4.2 supports.
NEWEST_JAVA = 25
_VECTOR_MODULE = "jdk.incubator.vector"

_GIB = 1 << 30
#: One GiB is the heap of Spark's driver; its Python workers and a broker need another GiB.
_LITTLE_MEMORY_BYTES = 2 * _GIB
#: Spark writes shuffle and spill files there.
_LITTLE_SPACE_BYTES = 1 * _GIB


@dataclass(frozen=True, slots=True)
class JavaFound:
    """A Java that is new enough.

    Args:
        executable: its launcher.
        version: the full version, as in ``17.0.15``.
        release: its feature release, as in 17.
        modules: its modules, without versions; None if they are unknown.
    """

    executable: str
    version: str
    release: int
    modules: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class JavaUnusable:
    """A Java that is missing or not supported.

    Args:
        what, remedy: the message and the remedy of the search for Java.
    """

    what: str
    remedy: str


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


@dataclass(frozen=True, slots=True)
class EmbeddedKafka:
    """The jars of the embedded broker.

    Args:
        version: the release that it starts.
        directory: the directory of the jars, whether or not they are downloaded.
        damage: why the jars are invalid; None if they are complete.
        cached: whether the directory exists.
    """

    version: str
    directory: str
    cached: bool
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, or the container.

    Args:
        cores: the cores that this process can use.
        available_bytes: available memory, including caches that can be freed; None if unknown.
        temporary_directory: where Spark writes spill files.
        temporary_free_bytes: the free space in it.
    """

    cores: int
    available_bytes: int | None
    temporary_directory: str
    temporary_free_bytes: int


def judge_java(java: JavaFound | JavaUnusable) -> Finding:
    """Checks whether Spark can start its JVM.

    >>> judge_java(JavaFound("/usr/bin/java", "21.0.2", 21, None)).state.value
    'ok'
    """
    if isinstance(java, JavaUnusable):
        return problem("java", java.what, java.remedy)
    if java.modules is not None and _VECTOR_MODULE not in java.modules:
        return problem(
            "java",
            f"{java.executable} lacks the module {_VECTOR_MODULE}: Spark cannot start it.",
            "Install a complete Java runtime (a package named openjdk-…-jre-headless is one), or point JAVA_HOME at it.",
            java.version,
        )
    if java.release > NEWEST_JAVA:
        return warning(
            "java",
            f"{java.executable} is newer than the Java versions that Spark supports, up to {NEWEST_JAVA}.",
            f"If Spark does not start, use Java 17, 21 or {NEWEST_JAVA}.",
            java.version,
        )
    return ok("java", f"Found at {java.executable}.", java.version)


def judge_workers(worker: WorkerPython, driver_version: str) -> Finding:
    """Checks whether Spark's workers run the Python that the driver runs.

    Args:
        worker: the Python of the workers.
        driver_version: the version of this Python.

    >>> judge_workers(WorkerPython("python3", "PATH", "3.9.2"), "3.11.2").what
    'Workers will run python3 (from PATH), Python 3.9, but the driver runs Python 3.11: Spark rejects that.'
    """
    said_by = f"{worker.command} (from {worker.origin})"
    use_this = "Set PYSPARK_PYTHON to the Python of this environment, or activate the environment."
    if worker.version is None:
        return problem("workers", f"Workers will run {said_by}, which does not start here.", use_this)
    theirs, ours = (".".join(version.split(".")[:2]) for version in (worker.version, driver_version))
    if theirs != ours:
        what = f"Workers will run {said_by}, Python {theirs}, but the driver runs Python {ours}: Spark rejects that."
        return problem("workers", what, use_this, worker.version)
    if worker.missing:
        what = f"Workers will run {said_by}, which lacks {', '.join(worker.missing)}."
        return problem("workers", what, use_this, worker.version)
    if worker.same:
        return ok("workers", f"Workers run this Python, {said_by}.", worker.version)
    return ok("workers", f"Workers run another Python with all required packages, {said_by}.", worker.version)


def judge_spark_home(home: SparkHome, pyspark_version: str | None) -> Finding | None:
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


def shadowing(
    directories: Mapping[str, Collection[str]], standard_library: Collection[str], dependencies: Collection[str]
) -> list[str]:
    """Returns files that replace a module that Spark's workers, or libraries in them, import.

    Args:
        directories: the modules in each directory at the start of Python's path: ``grp.py``, or ``grp/`` for a package.
        standard_library: names of its modules.
        dependencies: names of modules that streamgroups imports. Only files count, because a directory can be the real
            module.

    Returns:
        Paths, sorted.

    >>> shadowing({"/job": ["grp.py", "json/", "main.py", "pandas.py", "pyspark/"]}, {"grp", "json"}, {"pandas", "pyspark"})
    ['/job/grp.py', '/job/json/', '/job/pandas.py']
    """
    return sorted(
        f"{directory.rstrip('/')}/{entry}"
        for directory, entries in directories.items()
        for entry in entries
        if (name := entry.removesuffix("/").removesuffix(".py")) in standard_library
        or (entry.endswith(".py") and name in dependencies)
    )


def judge_names(shadowing_files: Iterable[str]) -> Finding:
    """Checks whether a file hides a module of Python.

    >>> judge_names(["/job/grp.py"]).state.value
    'warning'
    """
    files = list(shadowing_files)
    if not files:
        return ok("names", "No file in this directory hides a module of Python or of a library.")
    hides = "hides a module" if len(files) == 1 else "hide modules"
    return warning(
        "names",
        f"{', '.join(files)} {hides} of the same name, also in Spark's workers: calls of librdkafka can fail.",
        "Rename it." if len(files) == 1 else "Rename them.",
    )


def judge_embedded_kafka(kafka: EmbeddedKafka) -> Finding:
    """Checks whether the embedded broker can start without a network.

    >>> judge_embedded_kafka(EmbeddedKafka("4.1.2", "/cache/kafka", cached=False)).what
    'Its jars (44 MB) will be downloaded to /cache/kafka at the first start.'
    """
    if not kafka.cached:
        what = f"Its jars (44 MB) will be downloaded to {kafka.directory} at the first start."
        return ok("embedded kafka", what, kafka.version)
    if kafka.damage is not None:
        return warning(
            "embedded kafka",
            f"Its jars in {kafka.directory} are damaged: {kafka.damage}.",
            "They will be downloaded again at the next start. Without a network, copy the directory from another machine.",
            kafka.version,
        )
    return ok("embedded kafka", f"Its jars are in {kafka.directory}.", kafka.version)


def judge_machine(machine: Machine) -> list[Finding]:
    """Checks whether Spark has enough memory and disk space.

    >>> [f.in_use for f in judge_machine(Machine(2, 24 << 30, "/tmp", 9 << 30))]
    ['2 cores, 24.0 GiB']
    """
    memory = "" if machine.available_bytes is None else f", {machine.available_bytes / _GIB:.1f} GiB"
    in_use = f"{machine.cores} core{'' if machine.cores == 1 else 's'}{memory}"
    if machine.available_bytes is not None and machine.available_bytes < _LITTLE_MEMORY_BYTES:
        remedy = "Free some memory, or set spark.driver.memory to less than 1 GiB, its default."
        room = warning("machine", "This is little memory for Spark's JVM and its Python workers.", remedy, in_use)
    else:
        room = ok("machine", "Available cores and free memory.", in_use)
    if machine.temporary_free_bytes >= _LITTLE_SPACE_BYTES:
        return [room]
    free_mib = machine.temporary_free_bytes >> 20
    what = f"{machine.temporary_directory}, where Spark spills and shuffles, has {free_mib} MiB free."
    return [room, warning("machine", what, "Free some space, or set spark.local.dir to a directory on a larger disk.")]
