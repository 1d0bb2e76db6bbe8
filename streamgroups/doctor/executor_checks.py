"""Checks the Python of Spark's executors: the library, its dependencies, the reader, and the way to the brokers.

``streamgroups_cli.doctor`` calls this module with the facts of ``streamgroups_spark.ops.executors``. A driver can have
another Python, other packages and another network than its executors. The defects then occur in tasks, some only as a
slow reader. Executors with the same facts share a result, because a cluster can have hundreds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamgroups.doctor.check_results import CheckResult, ok, problem, warning
from streamgroups.printable import listed

_ABOUT = "executors"
#: The number of hosts in a result.
_MOST_HOSTS = 5


@dataclass(frozen=True, slots=True)
class Executor:
    """The Python process of one executor.

    Args:
        host: its host name.
        process: the process id of the executor.
        interpreter: the path of its Python. It is relative if the Python is in the working directory of the executor.
        python: the version of its Python.
        versions: the version of each module; ``None`` if it cannot be imported.
        missing: why the library cannot be imported; empty if it can.
        reader: ``native`` or ``plain``; empty without the library.
        why_plain: why the reader is not native; empty if it is.
        remedy: how to make the native reader available.
        unreachable: the brokers that it cannot reach, with the reasons.
    """

    host: str
    process: int
    interpreter: str
    python: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    missing: str = ""
    reader: str = ""
    why_plain: str = ""
    remedy: str = ""
    unreachable: Mapping[str, str] = field(default_factory=dict)


def judge_executors(
    executors: Sequence[Executor], expected: int, driver: Mapping[str, str | None]
) -> list[CheckResult]:
    """Checks all executors that have answered.

    Args:
        executors: their facts.
        expected: the number of executors of the application.
        driver: the version of each module on the driver.

    >>> fine = Executor("node-1", 7, "/opt/python", "3.11.2", {"pyarrow": "18.0"}, reader="native")
    >>> [(it.state.value, it.what) for it in judge_executors([fine], 1, {"pyarrow": "18.0"})]
    [('ok', '1 executor, on node-1: /opt/python, Python 3.11.2, pyarrow 18.0, native reader.')]
    """
    results = [
        *_without_library(executors),
        *_other_versions(executors, driver),
        *_plain(executors),
        *_cut_off(executors),
    ]
    if len(executors) < expected:
        what = f"{len(executors)} of {expected} executors answered in time, so the others are not checked."
        results.append(warning(_ABOUT, what, "Run it again when the cluster has free cores on every executor."))
    if not executors:
        return results or [problem(_ABOUT, "No executor answered.", "Check the logs of the Spark application.")]
    if not results:
        results = [ok(_ABOUT, _described(its, executors), its[0].python) for its in _grouped(executors, _software)]
    return results


def _software(it: Executor) -> tuple[object, ...]:
    return it.interpreter, it.python, tuple(sorted(it.versions.items())), it.reader


def _grouped(executors: Iterable[Executor], key: Callable[[Executor], object]) -> list[list[Executor]]:
    groups: defaultdict[object, list[Executor]] = defaultdict(list)
    for it in executors:
        groups[key(it)].append(it)
    return list(groups.values())


def _described(group: Sequence[Executor], executors: Sequence[Executor]) -> str:
    first = group[0]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(first.versions.items()))
    return f"{_place(group, executors)}: {first.interpreter}, Python {first.python}, {versions}, {first.reader} reader."


def _place(group: Sequence[Executor], executors: Sequence[Executor]) -> str:
    count = len(group)
    of_all = f" of {len(executors)}" if count < len(executors) else ""
    hosts = listed(sorted({it.host for it in group}), most=_MOST_HOSTS)
    return f"{count}{of_all} executor{'' if len(executors) == 1 else 's'}, on {hosts}"


def _without_library(executors: Sequence[Executor]) -> list[CheckResult]:
    bare = [it for it in executors if it.missing]
    return [
        problem(
            _ABOUT,
            f"{_place(group, executors)}: {group[0].interpreter} (Python {group[0].python}) cannot import streamgroups: "
            f"{group[0].missing}. Every task fails there.",
            f"Install its wheel there: {group[0].interpreter} -m pip install WHEEL; or set PYSPARK_PYTHON or spark.pyspark.python "
            "to a Python that has it on every host.",
        )
        for group in _grouped(bare, lambda it: (it.interpreter, it.python, it.missing))
    ]


def _other_versions(executors: Sequence[Executor], driver: Mapping[str, str | None]) -> list[CheckResult]:
    results = []
    for group in _grouped([it for it in executors if not it.missing], lambda it: tuple(sorted(it.versions.items()))):
        versions = group[0].versions
        other = {name: versions[name] for name in sorted(versions) if versions[name] != driver.get(name)}
        if not other:
            continue
        what = ", ".join(
            f"{name} {its_version or 'is missing'}; driver {driver.get(name)}" for name, its_version in other.items()
        )
        remedy = "Install the same versions on the driver and on all executors."
        sentence = f"{_place(group, executors)}: {what}."
        fails = "streamgroups" in other or None in other.values()
        results.append(
            problem(_ABOUT, f"{sentence} Tasks fail.", remedy) if fails else warning(_ABOUT, sentence, remedy)
        )
    return results


def _plain(executors: Sequence[Executor]) -> list[CheckResult]:
    slow = [it for it in executors if it.reader == "plain"]
    return [
        warning(
            _ABOUT,
            f"{_place(group, executors)}: the plain reader, which is several times slower. {group[0].why_plain}",
            group[0].remedy,
            "plain",
        )
        for group in _grouped(slow, lambda it: (it.why_plain, it.remedy))
    ]


def _cut_off(executors: Sequence[Executor]) -> list[CheckResult]:
    results = []
    for group in _grouped([it for it in executors if it.unreachable], lambda it: tuple(sorted(it.unreachable.items()))):
        brokers = "; ".join(f"{address}: {reason}" for address, reason in sorted(group[0].unreachable.items()))
        results.append(
            problem(
                _ABOUT,
                f"{_place(group, executors)}: brokers cannot be reached at their advertised addresses. {brokers}.",
                "Tasks read from the brokers directly: open the network from the executors to these addresses, or correct "
                "'advertised.listeners' of the brokers.",
            )
        )
    return results
