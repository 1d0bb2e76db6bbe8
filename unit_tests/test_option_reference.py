"""The reference of options lists each option of the parsers, with the default of its parser."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from streamgroups_spark.sinks import sink_options as sink
from streamgroups_spark.source import source_options as source

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "site"))
option_tables = importlib.import_module("option_tables")


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
