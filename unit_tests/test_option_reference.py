"""The reference of options lists each option of the parsers, with the default of its parser."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroups_spark.sinks import sink_options as sink
from streamgroups_spark.source import source_options as source

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "site"))
option_tables = importlib.import_module("option_tables")
#: Without the embedded broker, whose files have names of Ivy and log4j.
PACKAGES = [str(it) for it in sorted(Path("connectors").iterdir()) if it.is_dir() and it.name != "streamgroups_broker"]


@pytest.mark.parametrize(
    ("kind", "names"), [("source", source.OPTION_NAMES), ("sink", (*sink._NAMES, *sink._STREAM_NAMES))]
)
def test_the_reference_lists_each_option_of_the_parser(kind: str, names: tuple[str, ...]) -> None:
    assert sorted(row[0] for row in option_tables.rows(kind)) == sorted(names)


def test_a_default_of_the_reference_is_that_of_the_parser() -> None:
    defaults = {name: default for name, _, default, _ in option_tables.rows("source")}
    assert defaults["kafkaConsumer.pollTimeoutMs"] == "``120000``"
    assert defaults["membership"] == "``shared``"
    assert defaults["onMissingState"] == "``fail``"
    assert defaults["historyDir"] == "not set"


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_an_option_has_values_and_a_meaning(kind: str) -> None:
    assert all(all(row) for row in option_tables.rows(kind))


def test_messages_name_existing_options() -> None:
    """A message with an option that does not exist has no remedy."""
    of_spark = {"availableNow", "foreachBatch", "groupBy", "txnAppId", "withColumn", "withWatermark", "writeStream"}
    known = {*source.OPTION_NAMES, *sink._NAMES, *sink._STREAM_NAMES, *of_spark, "eventTime", "processingTime"}
    named = {
        (word, str(path))
        for package in ("streamgroups", *PACKAGES)
        for path in sorted(Path(package).rglob("*.py"))
        for text in _messages(ast.parse(path.read_text()))
        for word in re.findall(r"(?<![.\w/-])[a-z]+(?:[A-Z][a-z]+)+\b(?![.(\w])", text)
    }
    assert {it for it in named if it[0] not in known} == set()
    assert ("maxOffsetsPerTrigger", "connectors/streamgroups_kafka/membership/batch_watch.py") in named


def _messages(module: ast.Module) -> Iterator[str]:
    """The texts of a module with several words, without docstrings."""
    docstrings = {id(it.value) for it in ast.walk(module) if isinstance(it, ast.Expr)}
    for it in ast.walk(module):
        if isinstance(it, ast.Constant) and isinstance(it.value, str) and " " in it.value and id(it) not in docstrings:
            yield it.value
