"""P1: the commands for processors that need no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unit_tests.cli_runner import CommandLine

FILE = """\
name: {name}
source: {{connection: prod, subscribe: flights}}
steps:
  - decode: {{format: {{json: "carrier string, dep timestamp, delay int"}}}}
  - windows: {{on: dep, by: [carrier], window: {{tumbling: 1 hour}}, aggregate: {{n: count(*)}}, prepartitioned: true}}
sink: {{connection: warehouse, table: delays}}
dead_letters: {{connection: prod, topic: late.dlq}}
"""
CONNECTIONS = """
[connections.prod]
type = "kafka"
bootstrap-servers = "localhost:9092"
[connections.warehouse]
type = "postgres"
conninfo = "host=localhost"
"""


@pytest.fixture
def directory(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path / "config.toml"
    config.write_text(CONNECTIONS)
    config.chmod(0o600)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", "/var/processors")
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(FILE.format(name=name))
    return tmp_path


def test_P1_valid_files_are_named(cli: CommandLine, directory: Path) -> None:
    found = cli("processors", "validate", "one.yaml", "two.yaml")
    assert (found.code, found.out, found.err) == (
        0,
        "one.yaml: processor 'one' is valid.\ntwo.yaml: processor 'two' is valid.\n",
        "",
    )


def test_P1_all_mistakes_of_all_files_are_printed(cli: CommandLine, directory: Path) -> None:
    (directory / "two.yaml").write_text(FILE.format(name="one").replace("tumbling: 1 hour", "tumbling: 60"))
    (directory / "three.yaml").write_text(FILE.format(name="one").replace("warehouse", "warehuose"))
    (directory / "four.yaml").write_text(FILE.format(name="four").replace("table: delays", "topic: x"))
    files = ("one.yaml", "two.yaml", "three.yaml", "four.yaml", "five.yaml")
    found = cli("processors", "validate", *files)
    assert (found.code, found.out) == (2, "")
    assert [line.split(" Write")[0] for line in found.err.splitlines()] == [
        "two.yaml:5: steps[1].windows.window.tumbling: '60' is not a duration.",
        f"three.yaml:6: sink.connection: Connection 'warehuose' does not exist in {directory}/config.toml. Did you mean 'warehouse'?",
        "four.yaml:6: sink.connection: Connection 'warehouse' is of type postgres, but type kafka is required here. Use one of: prod.",
        "five.yaml: The file cannot be read: No such file or directory. Correct its path.",
        "three.yaml:1: name: Group 'local.one' is also that of one.yaml. Each of both would get a part of the records. Rename one of "
        "them.",
    ]
    document = json.loads(cli("processors", "validate", "-o", "json", *files).out)
    assert not document["valid"]
    assert document["problems"][0] == {
        "file": "two.yaml",
        "line": 5,
        "field": "steps[1].windows.window.tumbling",
        "what": "'60' is not a duration.",
        "remedy": "Write a number with a unit, as in 500ms, 30s, 10 minutes, 1h30m or PT1H30M.",
    }


def test_P1_an_explanation_has_group_state_and_permissions(cli: CommandLine, directory: Path) -> None:
    found = json.loads(cli("processors", "explain", "one.yaml", "two.yaml", "--instance", "board", "-o", "json").out)
    one = found["processors"][0]
    assert one["facts"] == {
        "group": "board.one",
        "reads": "flights of connection prod",
        "writes": "table delays of connection warehouse",
        "dead letters": "topic late.dlq of connection prod; in a transaction before the output",
        "delivery": "exactly-once",
        "membership": "shared: 1 member at once (replicas: 1)",
        "state": "/var/processors/board.one/state: local, so only this machine can continue it",
        "checkpoint": "a new one for each run: the positions are those of the group",
    }
    assert one["steps"][1]["state"] == "'windows', follows its partition"
    assert one["steps"][1]["arguments"].endswith("watermark without delay, unless a step before sets one")
    assert {"resource": "Group board.one", "permission": "Read", "needed_for": "source"} in one["requirements"]
    assert {"resource": "table delays", "permission": "INSERT", "needed_for": "sink"} in one["requirements"]
    assert found["warnings"] == [
        "Table 'delays' of connection 'warehouse' receives appended rows of the groups board.one, board.two. A reset of one of "
        "them writes its rows again."
    ]
    assert "late.dlq" in cli("processors", "explain", "one.yaml").out


def test_an_explanation_of_an_invalid_file_is_its_mistakes(cli: CommandLine, directory: Path) -> None:
    (directory / "one.yaml").write_text("name: a.b")
    found = cli("processors", "explain", "one.yaml")
    assert found.code == 2
    assert found.err.splitlines()[0].startswith("Error: one.yaml:1: name: 'a.b' is not valid.")
    assert len(found.err.splitlines()) == 2
    assert "'board.eu' is not a name of an instance" in cli("processors", "explain", "--instance", "board.eu", "x").err


def test_the_schema_is_printed(cli: CommandLine) -> None:
    assert json.loads(cli("processors", "schema").out)["title"] == "A processor of streamgroups"


def test_P1_a_file_is_validated_without_spark(directory: Path) -> None:
    program = (
        "import sys; from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({it.split('.')[0] for it in sys.modules} & {'pyspark', 'pyarrow', 'confluent_kafka', 'kafka', 'rich'}))"
    )
    command = [sys.executable, "-c", program, "processors", "validate", "one.yaml"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["one.yaml: processor 'one' is valid.", "[]"]


def test_P1_a_file_that_an_instance_cannot_store_is_not_valid(cli: CommandLine, directory: Path) -> None:
    text = FILE.format(name="one").replace("delays", r'"\uD800"') + '"\\uD800": 1\n"\\uD800": 2\n'
    (directory / "one.yaml").write_text(text)
    found = cli("processors", "validate", "one.yaml")
    assert (found.code, found.out) == (2, "")
    assert [line.split(". ")[0] for line in found.err.splitlines()] == [
        r"one.yaml:6: sink.table: The text contains half of a surrogate pair",
        "one.yaml:8: A key contains half of a surrogate pair",
        r"one.yaml:9: Key '\ud800' is there twice: it is also in line 8",
    ]
    cli("processors", "validate", "-o", "json", "one.yaml").out.encode()
    (directory / "one.yaml").write_text(FILE.format(name="one") + "replicas: 65\n")
    found = cli("processors", "validate", "one.yaml")
    assert (found.code, found.out) == (2, "")
    assert found.err == "one.yaml:8: replicas: '65' is out of range. Write a number from 1 to 64.\n"


def test_P1_a_member_beyond_the_replicas_is_rejected_before_spark_starts(cli: CommandLine, directory: Path) -> None:
    found = cli("processors", "run", "one.yaml", "--member", "1")
    assert (found.code, found.out) == (2, "")
    assert "Processor 'one' has no member 1. Its members are 0 to 0. Set 'replicas' for more." in found.err
