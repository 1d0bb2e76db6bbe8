"""P1: the text of a processor file is read as YAML 1.2, and all that makes it ambiguous is rejected with its line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.processors.processor import FunctionCall
from streamgroups.processors.schema import definition, schema
from streamgroups_spark.processors import vocabulary
from streamgroups_spark.processors.yaml_text import read_text

ROOT = Path(__file__).parent.parent.parent
FILE = b"""\
name: late-flights
source: {connection: prod, subscribe: flights}
steps:
  - decode: {format: {json: "carrier string, dep timestamp, delay int"}}
  - sql: SELECT *, record.carrier, record.dep FROM input WHERE record.delay > 15
  - function: my_package.flights:enrich          # DataFrame -> DataFrame
  - windows: {on: dep, by: [carrier], window: {tumbling: 1 hour}, watermark_delay: 30s, aggregate: {n: count(*)}, prepartitioned: true}
sink: {connection: warehouse, table: delays, mode: upsert, key: [window_start, carrier]}
dead_letters: {connection: prod, topic: late-flights.dlq}
"""


def _problems(content: bytes) -> list[str]:
    processor, problems = read_text(content, "late.yaml")
    assert (processor is None) == bool(problems)
    return [str(it) for it in problems]


def _step(value: str) -> object:
    """The argument ``on`` of windows, with this value in the file."""
    processor, problems = read_text(FILE.replace(b"on: dep", f"on: {value}".encode()), "late.yaml")
    assert not problems
    assert processor is not None
    last = processor.steps[-1]
    assert isinstance(last, FunctionCall)
    return last.arguments["on"]


def test_P1_a_file_keeps_its_lines() -> None:
    processor, problems = read_text(FILE, "late.yaml")
    assert processor is not None
    assert not problems
    assert [step.line for step in processor.steps] == [4, 5, 6, 7]
    assert processor.file == "late.yaml"
    # The file of an editor on Windows.
    windows = b"\xef\xbb\xbf" + FILE.replace(b"\n", b"\r\n")
    assert read_text(windows, "late.yaml")[0] == processor


@pytest.mark.parametrize(
    "word",
    ["on", "off", "yes", "no", "y", "NO", "1:30", "2013-01-01", "0b1", "1_000", ".inf", ".nan", "=", "0o8", "1.2.3"],
)
def test_P1_words_of_old_yaml_are_texts(word: str) -> None:
    assert _step(word) == word


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("true", "true"),
        ("12", "12"),
        ("0o7", "0o7"),
        ("010", "010"),
        ("1e3", "1e3"),
        ("1.10", "1.10"),
        ("-.5", "-.5"),
        ("0xF", "0xF"),
    ],
)
def test_a_number_where_a_text_is_needed_is_rejected_as_it_is_written(written: str, shown: str) -> None:
    (problem,) = _problems(FILE.replace(b"on: dep", f"on: {written}".encode()))
    assert problem == f"late.yaml:7: steps[3].windows.on: '{shown}' is not a text. Write it in quotes: \"{shown}\"."
    assert _step(f'"{written}"') == written


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            b"name: late-flights",
            b"name: a\nname: b",
            "late.yaml:2: Key 'name' is there twice: it is also in line 1. Remove one",
        ),
        (b"on: dep", b"on: dep, on: arr", "late.yaml:7: Key 'on' is there twice: it is also in line 7."),
        (b"  - sql", b"\t- sql", "late.yaml:5: A tab is not allowed. Use spaces."),
        (b"name: late-flights", b"name:\tlate-flights\n\tx: 1", "late.yaml:1: A tab is not allowed."),
        (b"flights}", b"&topic flights}", "late.yaml:2: The anchor '&topic' is not allowed."),
        (b"flights}", b"*topic}", "late.yaml:2: The alias '*topic' is not allowed. Write the value again."),
        (
            b"flights}",
            b"!!python/name:os.system flights}",
            "late.yaml:2: The tag 'tag:yaml.org,2002:python/name:os.system' is not",
        ),
        (
            b"name: late-flights",
            b"name: late-flights\nreplicas: 65",
            "late.yaml:2: replicas: '65' is out of range. Write a number from 1 to 64.",
        ),
        (b"flights}", b"!env TOPIC}", "late.yaml:2: The tag '!env' is not allowed."),
        (b"name: late-flights", b"<<: {name: x}\nname: late-flights", "late.yaml:1: A merge key '<<' is not allowed."),
        (b"name: late-flights", b"? [a]\n: 1\nname: late-flights", "late.yaml:1: A list or a table is not a key."),
        (b"source:", b"---\nsource:", "late.yaml:2: The file has several documents. Use one file for each processor."),
        (b"name: late", b"%YAML 1.1\n---\nname: late", "A directive is not allowed."),
        (b"name: late-flights", b"name: late-\xff", "late.yaml:1: The file is not UTF-8 text. Save it as UTF-8."),
        (b"# DataFrame", b"# \x07", "late.yaml:6: The character U+0007 is not allowed."),
        (
            b"watermark_delay: 30s",
            b"watermark_delay: 30",
            "late.yaml:7: steps[3].windows.watermark_delay: '30' is not a duration.",
        ),
        (
            b"SELECT *",
            b"a: b",
            "late.yaml:5: The file is not YAML: mapping values are not allowed here. Put a value that contains",
        ),
        (
            b"late-flights\n",
            b"@late\n",
            "late.yaml:1: The file is not YAML: found character '@' that cannot start any token. Put",
        ),
        (
            b"late-flights.dlq",
            b'"\\uD800"',
            "late.yaml:9: dead_letters.topic: The text contains half of a surrogate pair.",
        ),
        (
            b"flights.dlq",
            b"flights.dlq, max_share: 1e999",
            "late.yaml:9: dead_letters.max_share: '1e999' is not a finite",
        ),
        (b"subscribe: flights", b"subscribe:", "late.yaml:2: source.subscribe: The value is missing."),
    ],
    ids=lambda it: it.decode(errors="replace") if isinstance(it, bytes) else None,
)
def test_P1_an_ambiguous_file_is_rejected(old: bytes, new: bytes, expected: str) -> None:
    assert old in FILE
    problems = _problems(FILE.replace(old, new, 1))
    assert any(expected in it for it in problems), problems


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "late.yaml:1: The file is empty. Write a processor"),
        (b"# only a comment", "late.yaml:1: The file is empty."),
        (b"- a", "late.yaml:1: A list is not a table of keys and values."),
        (b"[" * 10_000, "late.yaml:1: Values are nested more than 32 levels deep."),
        (b"\n".join(b" " * n + b"a:" for n in range(400)), "late.yaml:32: Values are nested more than 32 levels deep."),
        (b"a" * 300_000, "late.yaml: The file has 300,000 bytes, and the maximum is 262,144."),
        (FILE.decode().encode("utf-16"), "late.yaml:1: The file is not UTF-8 text."),
    ],
    ids=["empty", "comment", "list", "deep", "deep block", "huge", "UTF-16"],
)
def test_P1_a_file_that_is_no_processor_is_rejected(content: bytes, expected: str) -> None:
    (problem,) = _problems(content)
    assert problem.startswith(expected)


def test_P1_all_problems_of_a_file_have_their_lines() -> None:
    content = (
        FILE.replace(b"on: dep", b"on: dep, flush: no, flush: yes")
        .replace(b"- decode", b"- decod")
        .replace(b"sink:", b"snk:")
    )
    assert [it.split(": ")[0] for it in _problems(content)] == [
        "late.yaml:4",
        "late.yaml:7",
        "late.yaml:7",
        "late.yaml:8",
    ]


@given(st.binary(max_size=200), st.integers(0, len(FILE)), st.integers(0, 30))
def test_any_bytes_are_read_or_rejected(inserted: bytes, at: int, removed: int) -> None:
    _problems(FILE[:at] + inserted + FILE[at + removed :])


def test_P1_the_schema_is_that_of_the_functions() -> None:
    """``python -m streamgroups_spark.processors.vocabulary`` writes it."""
    assert json.loads(json.dumps(vocabulary.processor_schema())) == schema()


def test_each_duration_of_a_step_is_one_in_the_schema() -> None:
    durations = {
        f"{step}.{name}"
        for step in ("windows", "stateful", "dedup", "join", "repartition", "with_event_time")
        for name, part in definition(step)["properties"].items()
        if part.get("format") == "duration"
    }
    assert durations == {
        "windows.watermark_delay",
        "windows.allowed_lateness",
        "windows.idle_timeout",
        "stateful.expire_after",
        "dedup.horizon",
        "join.within",
        "repartition.transaction_timeout",
        "with_event_time.watermark_delay",
        "with_event_time.partition_idle_timeout",
    }


def test_the_schema_accepts_the_file_of_the_documents() -> None:
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    processor, _ = read_text(FILE, "late.yaml")
    assert processor is not None
    validator = jsonschema_rs.validator_for(dict(schema()))
    assert validator.is_valid(processor.document)
    assert not validator.is_valid({**processor.document, "snk": {}})


def _documented() -> dict[str, str]:
    """The processors in the documents, by their page."""
    found = {}
    for page in (ROOT / "README.rst", ROOT / "docs" / "processors.rst"):
        block = re.compile(r"^\.\. code-block:: yaml\n(?:   :.*\n)*\n((?:   .*\n|\n)+)", re.MULTILINE)
        blocks = [textwrap.dedent(it) for it in block.findall(page.read_text(encoding="utf-8"))]
        found |= {f"{page.name}-{number}": it for number, it in enumerate(blocks) if it.startswith("name:")}
    return found


@pytest.mark.parametrize("text", _documented().values(), ids=_documented().keys())
def test_the_processors_of_the_documents_are_valid(text: str) -> None:
    assert _problems(text.encode()) == []


def test_both_documents_have_a_processor() -> None:
    assert {it.rpartition("-")[0] for it in _documented()} == {"README.rst", "processors.rst"}


def test_a_file_is_read_without_spark() -> None:
    program = (
        "import sys; from streamgroups_spark.processors.yaml_text import read_text; read_text(b'name: a', 'a.yaml');"
        "print(sorted({it.split('.')[0] for it in sys.modules} & {'pyspark', 'pyarrow', 'confluent_kafka', 'kafka'}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", Path.cwd()
