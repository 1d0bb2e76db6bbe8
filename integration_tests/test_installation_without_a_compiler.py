"""A wheel needs no compiler; a source distribution without one installs the plain reader and warns.

Source: docs/reader.rst, docs/deploy.rst "Common to all platforms".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.installations import Distributions, Installation, build_distributions, install_without_compiler
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce

_READ = """
import sys
from pyspark.sql import SparkSession
import streamgroups as sg

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
sg.register(spark)
sg.register(spark)
bootstrap, topic = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
records = spark.read.format("streamgroups").options(**options).load()
print("read", records.count(), "from", sg.__file__)
spark.stop()
"""
_WARNING = "The plain reader and encoder will be used in this environment"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build_distributions(tmp_path_factory.mktemp("distributions"))


def doctor(installation: Installation, bootstrap: str) -> dict[str, dict[str, Any]]:
    """The results of ``streamgroups doctor`` by subject."""
    result = installation.run("streamgroups", "doctor", "-o", "json", "-b", bootstrap)
    assert result.returncode == 0, result.stdout + result.stderr
    return {it["about"]: it for it in json.loads(result.stdout)["results"]}


def read(installation: Installation, bootstrap: str, topic: str) -> str:
    """Reads 8 records with Spark. Returns what the driver has printed to standard error."""
    result = installation.run("python", "-c", _READ, bootstrap, topic)
    assert result.returncode == 0, result.stderr
    assert f"read 8 from {installation.directory}/" in result.stdout
    return result.stderr


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> str:
    topic = new_topic(1)
    produce(bootstrap, topic, 8, partitions=1)
    return topic


@LONG
def test_a_wheel_has_the_native_reader(
    distributions: Distributions, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    installation = install_without_compiler(distributions.wheel, tmp_path / "environment")
    found = doctor(installation, bootstrap)
    assert {about: it["what"] for about, it in found.items() if it["state"] != "ok"} == {}
    assert found["reader"]["in_use"] == "native"
    assert _WARNING not in read(installation, bootstrap, topic)


@LONG
def test_a_source_distribution_has_the_plain_reader_and_warns(
    distributions: Distributions, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    installation = install_without_compiler(distributions.sdist, tmp_path / "environment")
    assert "WARNING: the native extension of streamgroups could not be built" in installation.log
    found = doctor(installation, bootstrap)
    assert [about for about, it in found.items() if it["state"] != "ok"] == ["reader"]
    reader = found["reader"]
    assert (reader["state"], reader["in_use"]) == ("warning", "plain")
    assert "Its build has failed: " in reader["what"]
    assert "/bin/false" in reader["what"]
    assert "STREAMGROUPS_BUILD=native" in reader["remedy"]
    assert read(installation, bootstrap, topic).count(_WARNING) == 1
