"""The error in a Python without the library names that Python and PYSPARK_PYTHON."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import datasource as ds
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import streamgroups
import streamgroups_spark
from streamgroups_spark.event_time.punctuation_source import TimeDataSource, TimeReader
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals import pickle_checks
from streamgroups_spark.internals.pickle_checks import Shipped, shipped_class, shipped_function
from streamgroups_spark.sinks.kafka import KafkaStreamWriter
from streamgroups_spark.sinks.kafka_batch import KafkaBatchWriter
from streamgroups_spark.sinks.ledger_writer import LedgerDataSource, LedgerStreamWriter
from streamgroups_spark.source.reader_before_4_2 import ReaderBefore42
from streamgroups_spark.source.readers import BatchReader, RejectedStream, StreamReader
from streamgroups_spark.windows.bucket_columns import Pack, Unpack
from streamgroups_spark.windows.processor import WindowProcessor
from unit_tests.bare_python import packages_without_us, run_without_us

ROOT = Path(__file__).parents[2]
SPARKS = (
    ds.DataSourceReader,
    ds.DataSourceStreamReader,
    ds.SimpleDataSourceStreamReader,
    ds.DataSourceWriter,
    ds.DataSourceStreamWriter,
    StatefulProcessor,
)
INSTANCES = (
    BatchReader,
    KafkaBatchWriter,
    KafkaStreamWriter,
    LedgerStreamWriter,
    Pack,
    ReaderBefore42,
    RejectedStream,
    StreamReader,
    TimeReader,
    Unpack,
    WindowProcessor,
)
LOAD = """
import pickle
for _ in range(int(sys.argv.pop())):
    try:
        pickle.loads(bytes.fromhex(input()))
    except Exception as e:
        print(type(e).__name__, e, e.__cause__, e.__suppress_context__)
"""


STATE = {"_query": None, "_implied": None, "_is_written": True, "_begun": "transaction"}


def _instance(cls: type) -> object:
    made = object.__new__(cls)
    # Those that begin their output when they are pickled have begun it.
    vars(made).update(STATE)
    return made


def _function() -> Callable[..., Any]:
    def length(values: pa.Array) -> int:
        return len(KafkaStreamWriter.__name__) + len(values)

    return shipped_function(length)


def _shipped() -> dict[str, bytes]:
    """Each thing of ours that Spark pickles, as Spark does it."""
    classes = {
        cls: shipped_class(cls, {"session": "s"}) for cls in (StreamGroupsDataSource, TimeDataSource, LedgerDataSource)
    }
    things: dict[str, object] = {cls.__name__: made for cls, made in classes.items()}
    things |= {f"a {cls.__name__}": made({"subscribe": "t"}) for cls, made in classes.items()}
    things |= {f"a {cls.__name__}": _instance(cls) for cls in INSTANCES}
    return {name: cloudpickle.dumps(thing) for name, thing in (things | {"a function": _function()}).items()}


def _errors(pickled: list[bytes], packages: Path, *paths: Path) -> list[str]:
    script = f"lines = iter({[it.hex() for it in pickled]!r})\ninput = lambda: next(lines)\n"
    return run_without_us(
        script + LOAD.replace("int(sys.argv.pop())", str(len(pickled))), packages, *paths
    ).splitlines()


def test_without_the_library(tmp_path: Path) -> None:
    shipped = _shipped()
    reported = _errors(list(shipped.values()), packages_without_us(tmp_path))
    assert len(reported) == len(shipped), reported
    for name, line in zip(shipped, reported, strict=True):
        assert line.startswith("ImportError Spark's Python process cannot import streamgroups, "), (name, line)
        assert f"interpreter is {sys.executable}, Python {sys.version.split()[0]}, on host " in line, (name, line)
        assert "set PYSPARK_PYTHON (or spark.pyspark.python)" in line, (name, line)
        assert line.endswith(" None True"), "no chained traceback"


def test_without_a_package_that_the_library_needs(tmp_path: Path) -> None:
    packages = packages_without_us(tmp_path, leave_out=("confluent_kafka",))
    reported = _errors([_shipped()["a StreamReader"]], packages, ROOT, ROOT / "connectors")
    assert len(reported) == 1, reported
    assert reported[0].startswith("ImportError Spark's Python process cannot import confluent_kafka, "), reported


def test_with_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_checks, "__version__", "9.9.9")
    reported = _errors(list(_shipped().values()), packages_without_us(tmp_path), ROOT, ROOT / "connectors")
    own = f"has streamgroups {streamgroups.__version__}, but the driver has streamgroups 9.9.9. The interpreter is"
    assert len(reported) == len(_shipped())
    assert all(own in line for line in reported), reported


PASS_ON = """
import pickle
from pyspark import cloudpickle
made = pickle.loads(bytes.fromhex(HEX))({"a": "b"})
assert made.session == "s" and made.options["a"] == "b"
print(cloudpickle.dumps(made).hex())
"""


@pytest.mark.parametrize("cls", [StreamGroupsDataSource, TimeDataSource, LedgerDataSource])
def test_the_next_process_checks_too(cls: type, tmp_path: Path) -> None:
    """Spark pickles the class to one process, which pickles an object of it to another."""
    packages = packages_without_us(tmp_path)
    pickled = cloudpickle.dumps(shipped_class(cls, {"session": "s"})).hex()
    passed_on = run_without_us(PASS_ON.replace("HEX", repr(pickled)), packages, ROOT, ROOT / "connectors")
    assert "PYSPARK_PYTHON" in _errors([bytes.fromhex(passed_on)], packages)[0]


def test_objects_come_as_they_were() -> None:
    found = cloudpickle.loads(cloudpickle.dumps(_instance(StreamReader)))
    assert type(found) is StreamReader
    assert vars(found) == STATE
    assert cloudpickle.loads(cloudpickle.dumps(_function()))([1, 2]) == len("KafkaStreamWriter") + 2


def test_every_class_is_shipped() -> None:
    found = set()
    for module in pkgutil.walk_packages(streamgroups_spark.__path__, "streamgroups_spark."):
        for thing in vars(importlib.import_module(module.name)).values():
            if isinstance(thing, type) and issubclass(thing, SPARKS) and thing.__module__ == module.name:
                found.add(thing)
    assert found >= {StreamReader, BatchReader, KafkaStreamWriter, LedgerStreamWriter, WindowProcessor, TimeReader}
    assert not [cls for cls in found if not issubclass(cls, Shipped)]
    assert {cls for cls in found if not inspect.isabstract(cls)} <= set(INSTANCES)
