"""What ``streamgroups doctor`` makes of facts: each fault has its state, its words and its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamgroups.doctor import installation_checks, machine_checks
from streamgroups.doctor.check_results import CheckResult, State, ok, problem, warning, worst
from streamgroups.doctor.installation_checks import ClientLibrary, NotLoadable, Package, Reader
from streamgroups.doctor.machine_checks import SparkHome, WorkerPython

CLIENT = Package("confluent-kafka", "<3,>=2.12", "2.16.1")
NATIVE = Reader(True, library="/l/librdkafka.so.1")
NOT_BUILT = Reader(False, "The extension is not there.", "Build it.")

CASES: dict[str, tuple[Callable[[], CheckResult | None], State, str, str]] = {
    "reader native": (lambda: installation_checks.judge_reader(NATIVE), State.OK, "/l/librdkafka.so.1", ""),
    "reader native, as configured": (
        lambda: installation_checks.judge_reader(replace(NATIVE, required="native")),
        State.OK,
        "/l/librdkafka.so.1",
        "",
    ),
    "reader plain": (
        lambda: installation_checks.judge_reader(NOT_BUILT),
        State.WARNING,
        "slower than with the native reader. The extension is not there.",
        "Build it.",
    ),
    "reader plain, as configured": (
        lambda: installation_checks.judge_reader(replace(NATIVE, required="plain")),
        State.WARNING,
        "STREAMGROUPS_READER selects it",
        "Unset the variable",
    ),
    "reader demanded that does not work": (
        lambda: installation_checks.judge_reader(replace(NOT_BUILT, required="native")),
        State.PROBLEM,
        "every task will fail. The extension is not there.",
        "Build it.",
    ),
    "reader that does not exist": (
        lambda: installation_checks.judge_reader(replace(NATIVE, required="fast")),
        State.PROBLEM,
        "STREAMGROUPS_READER is 'fast'",
        "native or plain",
    ),
    "client fine": (
        lambda: installation_checks.judge_client(ClientLibrary("2.16.1", "2.16.0"), CLIENT),
        State.OK,
        "confluent-kafka 2.16.1",
        "",
    ),
    "client does not load": (
        lambda: installation_checks.judge_client(NotLoadable("libsasl2.so.2: cannot open shared object file"), CLIENT),
        State.PROBLEM,
        "libsasl2.so.2",
        "pip install --force-reinstall",
    ),
    "librdkafka of an old system": (
        lambda: installation_checks.judge_client(ClientLibrary("2.16.1", "2.3.0"), CLIENT),
        State.PROBLEM,
        "requires librdkafka >=2.12,<3",
        "--only-binary :all: 'confluent-kafka>=2.12,<3'",
    ),
    "librdkafka with known faults": (
        lambda: installation_checks.judge_client(ClientLibrary("2.12.1", "2.12.1"), CLIENT),
        State.WARNING,
        "can crash; a member whose session has timed out",
        "'confluent-kafka>=2.15'",
    ),
    "librdkafka with one known fault": (
        lambda: installation_checks.judge_client(ClientLibrary("2.14.2", "2.14.2"), None),
        State.WARNING,
        "Known defects: a member whose session has timed out",
        "'confluent-kafka>=2.15'",
    ),
    "java fine": (lambda: machine_checks.judge_java("/j/bin/java", "17.0.15", 17), State.OK, "/j/bin/java", ""),
    "java newer than spark supports": (
        lambda: machine_checks.judge_java("/j/bin/java", "26", 26),
        State.WARNING,
        "up to 25",
        "Java 17, 21 or 25",
    ),
    "workers' python does not exist": (
        lambda: machine_checks.judge_workers(WorkerPython("/no/python", "PYSPARK_PYTHON", None), "3.11.2"),
        State.PROBLEM,
        "/no/python (from PYSPARK_PYTHON), which does not start",
        "PYSPARK_PYTHON",
    ),
    "workers' python is another release": (
        lambda: machine_checks.judge_workers(WorkerPython("/usr/bin/python3", "PATH", "3.9.2"), "3.11.2"),
        State.PROBLEM,
        "Python 3.9, but the driver runs Python 3.11",
        "activate the environment",
    ),
    "workers' python is another patch release": (
        lambda: machine_checks.judge_workers(WorkerPython("/p/python3", "PATH", "3.11.9"), "3.11.2"),
        State.OK,
        "another Python",
        "",
    ),
    "workers' python lacks what they need": (
        lambda: machine_checks.judge_workers(
            WorkerPython("/p", "PATH", "3.11.2", missing=("pyarrow", "pyspark")), "3.11.2"
        ),
        State.PROBLEM,
        "which lacks pyarrow, pyspark",
        "PYSPARK_PYTHON",
    ),
    "no spark at SPARK_HOME": (
        lambda: machine_checks.judge_spark_home(SparkHome("/opt/spark", None), "4.2.0"),
        State.PROBLEM,
        "which contains no Spark",
        "Unset SPARK_HOME",
    ),
    "another spark at SPARK_HOME": (
        lambda: machine_checks.judge_spark_home(SparkHome("/opt/spark", "3.5.1"), "4.2.0"),
        State.PROBLEM,
        "Spark 3.5.1; PySpark is 4.2.0",
        "Unset SPARK_HOME",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_judgement(case: str) -> None:
    judge, state, message, advises = CASES[case]
    result = judge()
    assert result is not None
    assert result.state is state
    assert message in result.what
    assert advises in result.remedy
    assert bool(result.remedy) == (state is not State.OK), "what is not ok has a remedy, and only that"


def test_a_spark_home_that_fits_is_not_worth_a_line() -> None:
    assert machine_checks.judge_spark_home(SparkHome("/opt/spark", "4.2.0"), "4.2.0") is None


def test_packages_that_will_do_share_a_line() -> None:
    packages = [
        Package("pyspark", ">=4.2,<5", "4.2.1", ("sql",)),
        Package("pandas", "<3,>=2.2", "2.3.3"),
        Package("rich", "", "15.0.0"),
        CLIENT,
    ]
    assert installation_checks.judge_packages(packages) == [
        ok("spark", "PySpark; required: >=4.2,<5.", "4.2.1"),
        ok("packages", "pandas 2.3.3, rich 15.0.0."),
    ]


@pytest.mark.parametrize(
    ("package", "about", "what", "remedy"),
    [
        (Package("pyspark", "<5,>=4.2", None, ("sql",)), "spark", "not installed", "'pyspark[sql]>=4.2,<5'"),
        (Package("pyspark", "<5,>=4.2", "3.5.1", ("sql",)), "spark", "3.5.1 is installed", "'pyspark[sql]>=4.2,<5'"),
        (Package("pandas", "<3,>=2.2", "3.0.1"), "packages", "requires >=2.2,<3", "'pandas>=2.2,<3'"),
        (Package("confluent-kafka", "<3,>=2.12", "2.6.0"), "packages", "2.6.0", "'confluent-kafka>=2.12,<3'"),
    ],
)
def test_packages_that_will_not_do_have_a_line_each(package: Package, about: str, what: str, remedy: str) -> None:
    (result,) = installation_checks.judge_packages([package])
    assert (result.about, result.state) == (about, State.PROBLEM)
    assert what in result.what
    assert remedy in result.remedy


def test_spark_is_an_extra_that_may_be_missing_but_not_too_old() -> None:
    pyspark = Package("pyspark", "<5,>=4.2", None, ("sql",), "spark")
    (missing,) = installation_checks.judge_packages([pyspark])
    assert (missing.about, missing.state) == ("spark", State.WARNING)
    assert "install the extra 'spark'" in missing.remedy
    (old,) = installation_checks.judge_packages([replace(pyspark, installed="4.1.0")])
    assert (old.about, old.state) == ("spark", State.PROBLEM)


def test_a_development_version_of_a_package_counts() -> None:
    (result,) = installation_checks.judge_packages([Package("pyspark", ">=4.2,<5", "4.3.0.dev1")])
    assert result.state is State.OK


def test_a_pyspark_that_pip_did_not_install() -> None:
    packages = [Package("pyspark", ">=4.2", None), Package("pandas", "", None)]
    found = installation_checks.with_version(packages, "pyspark", lambda: "4.2.0")
    assert [package.installed for package in found] == ["4.2.0", None]


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ([], State.OK),
        ([ok("a", "x")], State.OK),
        ([warning("a", "x", "y"), ok("b", "x")], State.WARNING),
        ([ok("a", "x"), problem("b", "x", "y"), warning("c", "x", "y")], State.PROBLEM),
    ],
)
def test_the_worst_result_is_the_state(results: list[CheckResult], state: State) -> None:
    assert worst(results) is state
