"""Runs a check in the Python of every executor of a Spark application, for ``streamgroups doctor --executors``.

Called by ``streamgroups_cli.doctor``; :mod:`streamgroups.doctor.executor_checks` evaluates the facts. An executor may lack the
library, so the function of the tasks is pickled by value and uses only the standard library until it has reported that.
Source: ``pyspark.cloudpickle``; Spark's ``SparkStatusTracker``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from streamgroups.doctor.executor_checks import Executor
from streamgroups_spark.internals.private_spark import registered_executors

#: The modules whose versions are compared with those of the driver.
MODULES = ("streamgroups", "pyarrow", "confluent_kafka", "numpy")
#: Executors of YARN and Kubernetes start within this time, if the cluster has room for them.
_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 5.0


def probe_executors(
    spark: SparkSession, brokers: Sequence[str], *, timeout_s: float = _TIMEOUT_S
) -> tuple[list[Executor], int]:
    """Checks every executor. Repeats a small job until each of them has run a task.

    Args:
        spark: the session.
        brokers: the advertised addresses of the brokers to reach, as ``host:port``.
        timeout_s: how long to repeat it, in seconds.

    Returns:
        The executors that have answered, and the number of executors of the application.
    """
    context = spark.sparkContext
    check = task_check(MODULES, brokers, _CONNECT_TIMEOUT_S)
    found: dict[tuple[str, int], Executor] = {}
    deadline_s = time.monotonic() + timeout_s
    while True:
        expected = _expected(spark)
        tasks = 2 * max(context.defaultParallelism, expected)
        for facts in context.parallelize(range(tasks), tasks).mapPartitions(check).collect():
            it = Executor(**facts)
            found[it.host, it.process] = it
        if len(found) >= expected or time.monotonic() > deadline_s:
            return list(found.values()), expected


def driver_versions() -> dict[str, str | None]:
    """Returns the version of each module on the driver."""
    (facts,) = task_check(MODULES, (), _CONNECT_TIMEOUT_S)(())
    versions: dict[str, str | None] = facts["versions"]
    return versions


def _expected(spark: SparkSession) -> int:
    """The number of executors: of those that are registered, or requested without dynamic allocation.

    The driver is one of the registered ones. It runs the tasks itself if the master is ``local``.
    """
    registered = registered_executors(spark)
    conf = spark.sparkContext.getConf()
    requested = 0
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        requested = int(conf.get("spark.executor.instances", "0") or 0)
        cores, cores_each = (int(conf.get(f"spark.{it}") or 0) for it in ("cores.max", "executor.cores"))
        if not requested and cores_each and str(conf.get("spark.master")).startswith("spark://"):
            # Spark standalone starts as many executors as the cores suffice for.
            requested = cores // cores_each
    return max(1, registered, requested)


def task_check(
    modules: Sequence[str], brokers: Sequence[str], timeout_s: float
) -> Callable[[Iterable[Any]], Iterator[Mapping[str, Any]]]:
    """Returns the function of a task, which yields the arguments of one :class:`Executor`.

    >>> (facts,) = task_check(["streamgroups", "no_such_module"], [], 1.0)([])
    >>> facts["versions"]["no_such_module"], "missing" in facts, facts["unreachable"]
    (None, False, {})
    """

    def check(_rows: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        # This function is pickled by value: it must not refer to names of this module.
        import os
        import platform
        import socket
        import sys
        from importlib import import_module

        def version(name: str) -> str | None:
            try:
                return str(getattr(import_module(name), "__version__", "unknown"))
            except Exception:  # a package of another architecture raises other errors
                return None

        def executor_process() -> int:
            # The parent of a worker is Spark's daemon, whose parent is the executor.
            parent = os.getppid()
            try:
                with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as stat:
                    return int(stat.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return parent

        def interpreter() -> str:
            # Each executor unpacks an archive in its own working directory. With the relative path, all have one result.
            path = os.path.relpath(sys.executable)
            if path.startswith(os.pardir) or os.getcwd() == os.sep:
                return sys.executable
            return os.path.join(os.curdir, path)

        def is_rejected(address: str) -> str:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
            except (socket.gaierror, UnicodeError):
                # Python encodes a name before it resolves it: an empty or a long label is a UnicodeError.
                return "unknown host"
            except TimeoutError:
                return f"no response within {timeout_s:g} s"
            except OSError as e:
                return os.strerror(e.errno).lower() if e.errno else str(e)
            return ""

        facts: dict[str, Any] = {
            "host": socket.gethostname(),
            "process": executor_process(),
            "interpreter": interpreter(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in modules},
            "unreachable": {address: reason for address in brokers if (reason := is_rejected(address))},
        }
        try:
            native = import_module("streamgroups_kafka.native")
            status = native.status()
            is_native = status.available and os.environ.get(native.READER_VARIABLE) != "plain"
            why = "" if is_native else status.reason or f"{native.READER_VARIABLE} selects it."
            facts |= {"reader": "native" if is_native else "plain", "why_plain": why}
            facts["remedy"] = "" if is_native else status.remedy or "Unset the variable on the executors."
        except ImportError as e:
            facts["missing"] = str(e)
        yield facts

    return check
