"""``streamgroups doctor`` on this machine: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamgroups.doctor.executor_checks import Executor
from streamgroups.errors import InvalidOption
from streamgroups_cli import _spark_application
from streamgroups_cli.command_line import app
from streamgroups_spark.ops import executors


@pytest.fixture(autouse=True)
def fine_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without a problem; a test spoils one thing. Its working directory is empty."""
    fake_java(tmp_path / "java" / "bin")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("STREAMGROUPS_READER", raising=False)
    return work


def fake_java(directory: Path) -> None:
    directory.mkdir(parents=True)
    java = directory / "java"
    version = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
    java.write_text(f"#!/bin/sh\n{version}\n")
    java.chmod(0o755)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "500"})


def check_results(*arguments: str) -> tuple[int, dict[str, Mapping[str, str]]]:
    result = doctor("-o", "json", *arguments)
    report = json.loads(result.stdout)
    states = [check["state"] for check in report["results"]]
    assert report["state"] == next(state for state in ("problem", "warning", "ok") if state in states)
    return result.exit_code, {check["about"]: check for check in report["results"]}


def test_a_machine_without_a_problem() -> None:
    code, found = check_results()
    assert code == 0, found
    assert list(found) == [
        *("python", "streamgroups", "reader", "librdkafka", "java", "spark", "packages", "workers"),
    ]
    assert found["python"]["in_use"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert found["java"]["in_use"] == "17.0.15"
    assert found["workers"]["state"] == "ok"
    assert set(found["java"]) == {"about", "state", "what", "remedy", "in_use"}


def test_the_table_contains_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    _, found = check_results()
    result = doctor()
    assert result.exit_code == 1
    # The longest text has two lines.
    shown = " ".join(result.stdout.split())
    for check in found.values():
        assert check["what"] in shown
        assert f"→ {check['remedy']}" in result.stdout or not check["remedy"]
    assert "1 problem" in result.stdout.splitlines()[-1]


def test_a_java_home_that_points_at_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    code, found = check_results()
    assert code == 1
    assert found["java"]["state"] == "problem"
    assert str(tmp_path / "nothing") in found["java"]["what"]
    assert "JAVA_HOME" in found["java"]["remedy"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("""echo '["3.9.2", []]'""", "Python 3.9, but the driver runs Python"),
        ("""echo '["{}.{}.0", ["pyarrow"]]'""".format(*sys.version_info[:2]), "which lacks pyarrow"),
        ("exit 1", "does not start here"),
        ("echo Hello", "does not start here"),
    ],
)
def test_workers_with_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    code, found = check_results()
    assert code == 1
    assert message in found["workers"]["what"]


def test_workers_get_the_python_of_path_when_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PATH", str(tmp_path))
    code, found = check_results()
    assert code == 1
    assert found["workers"]["what"] == "Workers will run python3 (from PATH), which does not start here."


def test_a_reader_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUPS_READER", "fast")
    code, found = check_results()
    assert code == 1
    assert "'fast'" in found["reader"]["what"]


def test_another_spark_at_spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    code, found = check_results()
    assert code == 1
    assert "Spark 3.5.1" in found["spark"]["what"]


@pytest.mark.parametrize(
    "wrong",
    [("--bootstrap-servers", "localhost:9092"), ("-o", "xml")],
)
def test_usage_errors_are_exit_code_2(wrong: tuple[str, str]) -> None:
    assert doctor(*wrong).exit_code == 2


@pytest.mark.parametrize(
    ("server", "text", "message"),
    [
        (("--bootstrap-server", "localhost"), "", "'localhost' is not host:port"),
        ((), "sasl.mechanism=PLAIN\n", "The broker address is missing"),
        (("--bootstrap-server", "h:1"), "sasl.pasword=hunter2\n", "Did you mean 'sasl.password'?"),
    ],
)
def test_an_ambiguous_cluster_is_rejected_at_once(
    tmp_path: Path, server: tuple[str, ...], text: str, message: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    result = doctor(*server, "--command-config", str(file))
    assert isinstance(result.exception, InvalidOption)
    assert message in str(result.exception)
    assert "hunter2" not in str(result.exception) + result.output


def test_a_broken_client_is_diagnosed_with_a_current_context(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('current-context = "prod"\n[connections.prod]\ntype = "kafka"\nbootstrap-servers = "h:1"\n')
    code = (
        "import sys\n"
        "sys.modules['confluent_kafka'] = None\n"
        "sys.argv = ['streamgroups', 'doctor', '-o', 'json']\n"
        "from streamgroups_cli import main\n"
        "main()"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "STREAMGROUPS_CONFIG": str(file),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    found = {it["about"]: it for it in json.loads(done.stdout)["results"]}
    assert found["librdkafka"]["state"] == "problem"
    assert "confluent-kafka cannot be imported" in found["librdkafka"]["what"]
    assert found["cluster"]["state"] == "warning"
    assert found["cluster"]["what"] == "It was not checked, because that requires a Kafka client."
    assert found["java"]["state"] == "ok"


def test_it_imports_neither_spark_nor_arrow() -> None:
    code = (
        "import sys; sys.argv = ['streamgroups', 'doctor']\n"
        "from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.splitlines()[-1] == "[]"


# ---- executors -------------------------------------------------------------------------------------------------------


def test_executors_are_checked_with_the_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Mapping[str, str]] = []

    @contextmanager
    def application(settings: Mapping[str, str]) -> Iterator[str]:
        started.append(settings)
        yield "session"

    def probe(_spark: str, brokers: Sequence[str]) -> tuple[list[Executor], int]:
        assert list(brokers) == []
        return [Executor("node-1", 7, sys.executable, "3.11.2", executors.driver_versions(), reader="native")], 2

    monkeypatch.setattr(_spark_application, "spark_application", application)
    monkeypatch.setattr(executors, "probe_executors", probe)
    code, found = check_results("--executors", "--master", "spark://host:7077", "--conf", "spark.cores.max=4")
    assert (code, started) == (0, [{"spark.master": "spark://host:7077", "spark.cores.max": "4"}])
    assert found["executors"]["state"] == "warning"


def test_the_setting_of_the_python_of_workers_precedes_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    application: Any = SimpleNamespace(pythonExec=sys.executable, setLogLevel=lambda _level: None)
    settings: dict[str, str] = {}
    spark: Any = SimpleNamespace(sparkContext=application, conf=settings, stop=lambda: None)
    builder: Any = SimpleNamespace(getOrCreate=lambda: spark)
    builder.appName = lambda _name: builder
    builder.config = lambda name, value: settings.update({name: value}) or builder
    used: list[str] = []

    def probe(session: Any, _brokers: Sequence[str]) -> tuple[list[Executor], int]:
        used.append(session.sparkContext.pythonExec)
        return [], 1

    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    monkeypatch.setattr(executors, "probe_executors", probe)
    python = tmp_path / "no-python"
    code, found = check_results("--executors", "--conf", f"spark.pyspark.python={python}")
    assert (code, used) == (1, [str(python)])
    assert f"{python} (from spark.pyspark.python), which does not start" in found["workers"]["what"]
    settings.clear()
    application.pythonExec = sys.executable
    check_results("--executors")
    assert used[1] == sys.executable, "that of PySpark, without the setting"


@pytest.mark.parametrize(("python", "needs_archive"), [("python9", False), ("./environment/bin/python", True)])
def test_a_spark_application_that_does_not_start_is_a_problem(
    python: str, needs_archive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def application(_settings: Mapping[str, str]) -> None:
        cause = f'java.io.IOException: Cannot run program "{python}": error=2, No such file or directory'
        raise RuntimeError(
            f"An error occurred while calling collectAndServe.\n: SparkException: Job aborted: {cause}\n\tat"
        )

    monkeypatch.setattr(_spark_application, "spark_application", application)
    code, found = check_results("--executors")
    assert (code, found["executors"]["state"]) == (1, "problem")
    assert found["executors"]["what"] == (
        f'No task ran: Cannot run program "{python}": error=2, No such file or directory.'
    )
    assert "a Python that exists on every host" in found["executors"]["remedy"]
    assert ("--archives" in found["executors"]["remedy"]) == needs_archive


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--master", "local"], "--master and --conf need --executors"),
        (["--executors", "--conf", "hunter2"], "A --conf option is not NAME=VALUE."),
    ],
)
def test_settings_of_spark_are_checked_first(arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)) as rejected:
        CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    assert "hunter2" not in str(rejected.value)
