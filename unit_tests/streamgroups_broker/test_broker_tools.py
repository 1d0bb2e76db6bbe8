"""Running Kafka's own tools: what is run, and what happens when it takes too long."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker._tools import RunsTools


class Here(RunsTools):
    """A cluster whose tools are Python programs: the main class is the program."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def _address_for_tools(self) -> str:
        return "127.0.0.1:9092"

    def _run_main_class(
        self, command: Sequence[str], timeout_s: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        program = "import sys, time; sys.stdout.write(' '.join(sys.argv[1:]) + sys.stdin.read()); time.sleep(%s)"
        wait_s = 60 if "--forever" in command else 0
        return subprocess.run(
            [sys.executable, "-c", program % wait_s, *command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            input=stdin or "",
        )


def test_a_tool_is_run_against_the_cluster() -> None:
    done = Here().run_tool("topics", "--list", stdin=" and this")
    assert done.stdout == "org.apache.kafka.tools.TopicCommand --bootstrap-server 127.0.0.1:9092 --list and this"


def test_a_tool_that_takes_too_long_is_ended() -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"Any.Class --forever took longer than 0\.2 s.*timeout_s"):
        Here().run_tool("Any.Class", "--forever", timeout_s=0.2)


def test_a_missing_tool_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="no tool 'flights'"):
        Here().run_tool("flights")
