"""The tutorials work word by word: their files are written, and their commands run in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.tiers import LONG
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT, Block, blocks

DOCS = ROOT / "docs"
TIMEOUT_S = 120
#: A page has many steps. Each can take that long.
pytestmark = pytest.mark.timeout(1_200)


class Reader:
    """A reader of the tutorial with some terminals in one directory.

    Args:
        directory: an empty directory.
        bootstrap: the brokers, instead of the one that the reader starts.
    """

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory, self.bootstrap, self.registry = directory, bootstrap, ""
        programs = directory / "bin"
        programs.mkdir()
        for name, code in (("python", '"$@"'), ("streamgroups", '-c "from streamgroups_cli import main; main()" "$@"')):
            (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} {code}\n")
            (programs / name).chmod(0o755)
        self._env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
        self.terminals: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []

    def save(self, block: Block) -> None:
        """Writes a program."""
        (self._directory / block.caption).write_text(self._here(block.code))

    def run(self, block: Block) -> str:
        """Runs the commands of a block. Returns their output."""
        output = ""
        for command in self._commands(block):
            done = subprocess.run(
                command if ">" in command else shlex.split(command),
                shell=">" in command,
                cwd=self._directory,
                env=self._env,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            output += done.stdout
        return output

    def start(self, block: Block) -> None:
        """Runs the command of a block in a terminal of its own."""
        (command,) = self._commands(block)
        self._logs.append(self._directory / f"{block.caption}.log")
        with self._logs[-1].open("wb") as log:
            terminal = subprocess.Popen(
                f"exec {command}", shell=True, cwd=self._directory, env=self._env, stdout=log, stderr=log
            )
        self.terminals.append(terminal)

    def output(self, block: Block) -> str:
        """The output of the terminal of a block."""
        return (self._directory / f"{block.caption}.log").read_text()

    def _commands(self, block: Block) -> list[str]:
        return [line.removeprefix("$ ") for line in self._here(block.code).splitlines() if line.startswith("$ ")]

    def _here(self, code: str) -> str:
        code = code.replace("localhost:9092", self.bootstrap).replace("http://localhost:8081", self.registry)
        code = code.replace("kill -9 PID", f"kill -9 {self._first_process()}")
        return code.replace("port=8081", "port=0")

    def _first_process(self) -> str:
        """The process id that the program of the first terminal has printed."""
        printed = re.search(r"^process (\d+)$", self._logs[0].read_text(), re.MULTILINE) if self._logs else None
        return printed.group(1) if printed else ""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Has a broker of its own, because the topics of the tutorial have names that other tests use too."""
    with EmbeddedKafka(properties=BROKER_PROPERTIES) as kafka:
        reader = Reader(tmp_path, kafka.bootstrap_servers)
        yield reader
        for terminal in reader.terminals:
            terminal.kill()
            terminal.wait(TIMEOUT_S)


@LONG
def test_the_tutorial(reader: Reader) -> None:
    outputs = {}
    for block in blocks(DOCS / "tutorial.rst", "python", "console"):
        if block.language == "python":
            reader.save(block)
        elif block.caption in ("setup", "broker"):
            continue
        elif block.caption in ("first query", "second query"):
            reader.start(block)
            _wait_until_it_reads(reader, "board")
        else:
            if block.caption == "compare":
                _wait_until_all_is_read(reader, "board", "flights")
            outputs[block.caption or block.line] = reader.run(block)
    assert re.search(r"missing: 0 twice: 0", outputs["compare"])
    late = int(re.search(r"(\d+) late flights", outputs["compare"]).group(1))  # type: ignore[union-attr]
    assert 12_000 < late < 14_000
    hours = [int(count) for count in re.findall(r"\| *(?:AA|B6|DL|EV|UA|US|WN) *\| *(\d+) *\|", outputs["hours"])]
    assert len(hours) > 30
    assert 15_000 < sum(hours) < 20_000, "the last hour of each carrier stays open"
    wait_until(
        lambda: committed_offsets(reader.bootstrap, "board", "flights") == end_offsets(reader.bootstrap, "flights", 4),
        "the query reads the records of the reset again",
        timeout_s=TIMEOUT_S,
    )


@LONG
def test_the_job_with_windows(reader: Reader) -> None:
    for block in blocks(DOCS / "windows-exactly-once.rst", "python", "console"):
        if block.language == "python":
            reader.save(block)
        elif block.caption in ("first process", "second process"):
            reader.start(block)
            _wait_until_it_reads(reader, "click-minutes")
        elif block.caption == "writer":
            reader.start(block)
        elif block.caption == "check":
            reader.terminals[-1].wait(TIMEOUT_S)
            _wait_until_all_is_read(reader, "click-minutes", "clicks")
            wait_until(
                partial(_has_all_windows, reader, block), "the last windows close and are written", timeout_s=TIMEOUT_S
            )
        else:
            if block.caption == "kill":
                wait_until(
                    lambda: sum(end_offsets(reader.bootstrap, "minutes", 4).values()) > 50,
                    "both processes write windows",
                    timeout_s=TIMEOUT_S,
                )
            reader.run(block)


def _has_all_windows(reader: Reader, check: Block) -> bool:
    output = reader.run(check)
    assert "wrong: 0 twice: 0" in output, output
    assert "windows of 6000 clicks" in output, output
    return "missing: 0" in output


def _wait_until_it_reads(reader: Reader, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": reader.bootstrap})

    def every_member_has_partitions() -> bool:
        assert all(terminal.poll() is None for terminal in reader.terminals), "a query has failed"
        try:
            described = admin.describe_consumer_groups([group])[group].result(10)
        except KafkaException:
            # The coordinator of the first group is created with the topic of offsets.
            return False
        owned = [len(member.assignment.topic_partitions) for member in described.members]
        return len(owned) == len(reader.terminals) and all(owned)

    wait_until(every_member_has_partitions, "each query owns partitions", timeout_s=TIMEOUT_S)


def _wait_until_all_is_read(reader: Reader, group: str, topic: str) -> None:
    ends = end_offsets(reader.bootstrap, topic, 4)
    wait_until(
        lambda: committed_offsets(reader.bootstrap, group, topic) == ends,
        "the second query reads the rest",
        timeout_s=TIMEOUT_S,
    )


@LONG
def test_P4_the_tutorial_of_dead_letters(reader: Reader) -> None:
    outputs: dict[str | int, str] = {}
    for block in blocks(DOCS / "tutorial-dead-letters.rst", "python", "console"):
        if block.language == "python":
            reader.save(block)
        elif block.caption == "registry":
            reader.start(block)
            wait_until(partial(_has_printed_its_url, reader, block), "the registry runs", timeout_s=TIMEOUT_S)
            reader.registry = reader.output(block).split()[0]
        elif block.caption == "letter":
            (topic,) = set(re.findall(r"orders@[\w-]{8}", "".join(outputs.values())))
            outputs["letter"] = reader.run(replace(block, code=re.sub(r"orders@[\w-]{8}", topic, block.code)))
        elif block.caption != "setup":
            outputs[block.caption or block.line] = reader.run(block)
    assert re.search(r"^decode +NoMagicByte +orders +10 ", outputs["letters"], re.MULTILINE), outputs["letters"]
    assert '{"id": 299, "item": "book", "amount": 9.5}' in outputs["letter"]
    assert re.search(r"^decode +NoMagicByte +orders +10 +0 +10 ", outputs["after"], re.MULTILINE), outputs["after"]
    assert "1000 shipments of 1000 orders" in outputs["count"]


def _has_printed_its_url(reader: Reader, block: Block) -> bool:
    return "http://" in reader.output(block)
