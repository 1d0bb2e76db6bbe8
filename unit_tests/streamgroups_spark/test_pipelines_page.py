"""The project of ``docs/pipelines.rst``: Spark reads its specification, and the source and the sink accept its options.

``integration_tests/test_pipelines.py`` runs it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from streamgroups_spark.formats.unregistered import check_unregistered
from streamgroups_spark.sinks.sink_options import Delivery, parse_sink
from streamgroups_spark.source.source_options import parse
from unit_tests.documents import ROOT, blocks

pytest.importorskip("grpc", reason="pipelines need grpcio: pip install 'pyspark[pipelines]'")
cli = pytest.importorskip("pyspark.pipelines.cli", reason="pipelines need PySpark 4.1")

_PAGE = ROOT / "docs" / "pipelines.rst"
_CONNECTION = '[connections.prod]\ntype = "kafka"\nbootstrap-servers = "broker:9092"\n'


class Reader:
    """``spark.readStream`` and the stream that it loads. It keeps the options of each stream."""

    def __init__(self, loaded: list[dict[str, str]]) -> None:
        self._loaded, self._options = loaded, dict[str, str]()

    def format(self, name: str) -> Reader:
        assert name == "streamgroups"
        return self

    def option(self, name: str, value: str) -> Reader:
        self._options[name] = value
        return self

    def load(self) -> Any:
        self._loaded.append(self._options)
        return mock.MagicMock()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The outputs and flows of the page, as its Python file registers them, and the options of their streams."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    outputs: list[Any] = []
    flows: list[Any] = []
    streams: list[dict[str, str]] = []
    session = mock.Mock()
    type(session).readStream = mock.PropertyMock(side_effect=lambda: Reader(streams))
    monkeypatch.setattr(SparkSession, "active", lambda: session)
    registry: Any = SimpleNamespace(register_output=outputs.append, register_flow=flows.append)
    (definitions,) = blocks(_PAGE, "python")
    with graph_element_registration_context(registry):
        exec(compile(definitions.code, str(definitions), "exec"), {})
    for flow in flows:
        flow.func()
    return SimpleNamespace(outputs=outputs, flows=flows, streams=streams)


def test_spark_accepts_the_specification(tmp_path: Path) -> None:
    import yaml

    (block,) = blocks(_PAGE, "yaml")
    specification = cli.unpack_pipeline_spec(yaml.safe_load(block.code))
    (definitions,) = blocks(_PAGE, "python")
    (library,) = specification.libraries
    file = tmp_path / definitions.caption
    file.parent.mkdir()
    file.touch()
    assert list(tmp_path.glob(library.include)) == [file]


def test_S13_automatic_registration_accepts_the_options_of_each_flow(registered: Any, tmp_path: Path) -> None:
    connections = tmp_path / "config.toml"
    connections.write_text(_CONNECTION)
    assert [flow.target for flow in registered.flows] == [output.name for output in registered.outputs]
    groups = set()
    for given in registered.streams:
        options = parse(given, streaming=True, connections_file=str(connections))
        check_unregistered(options)
        groups.add(options.group_id)
    assert len(groups) == len(registered.flows) == 2
    (sink,) = (output for output in registered.outputs if hasattr(output, "options"))
    assert sink.format == "streamgroups"
    # Spark adds the checkpoint of the flow.
    options = {**sink.options, "checkpointLocation": "/data/flight-board/_checkpoints/delays"}
    assert parse_sink(options, connections_file=str(connections)).delivery is Delivery.EXACTLY_ONCE
