"""O1, O3: ``groups watch`` and ``metrics`` on a real cluster: a screen that Ctrl-C ends, and metrics for Prometheus."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.waits import wait_until

COMMAND = [sys.executable, "-c", "from streamgroups_cli import main; main()"]


def cli(bootstrap: str, *arguments: str) -> None:
    subprocess.run([*COMMAND, *arguments, "--bootstrap-server", bootstrap], check=True, capture_output=True)


def behind(bootstrap: str, new_topic: Callable[..., str], group: str) -> str:
    """A topic with two partitions of ten records each. The group has read five records of each."""
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    cli(bootstrap, "groups", "reset", group, "--topic", topic, "--to-offset", "5", "--execute")
    return topic


def read(terminal: int) -> str:
    """The text that was written to a terminal; empty after its last writer has closed it.

    Raises:
        TimeoutError: if no text is written for a long time.
    """
    if not select.select([terminal], [], [], 60)[0]:
        raise TimeoutError
    try:
        return os.read(terminal, 65_536).decode(errors="replace")
    except OSError:
        return ""


@LONG
def test_a_screen_that_ctrl_c_ends(bootstrap: str, new_topic: Callable[..., str], group: str) -> None:
    topic = behind(bootstrap, new_topic, group)
    own, other = pty.openpty()
    command = [*COMMAND, "groups", "watch", group, "--interval", "1s", "-b", bootstrap]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "40"}
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as watcher:
        os.close(other)
        screen = ""
        try:
            while topic not in screen:
                screen += read(own)
            assert group in screen
            watcher.send_signal(signal.SIGINT)
            while read(own):
                pass
            assert watcher.wait(30) == 0
        finally:
            watcher.kill()
            os.close(own)


def test_a_pipe_gets_one_poll_after_the_other(bootstrap: str, new_topic: Callable[..., str], group: str) -> None:
    behind(bootstrap, new_topic, group)
    command = [*COMMAND, "groups", "watch", group, "--interval", "1s", "-o", "json", "-b", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None

        def lag() -> int:
            assert watcher.stdout is not None
            (watched,) = json.loads(watcher.stdout.readline())["groups"]
            return int(watched["lag"])

        assert lag() == 10
        cli(bootstrap, "groups", "reset", group, "--all-topics", "--to-latest", "--execute")
        wait_until(lambda: lag() == 0, "the lag is gone", interval_s=0)
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(10) == 0


@LONG
def test_prometheus_reads_the_lag(bootstrap: str, new_topic: Callable[..., str], group: str) -> None:
    topic = behind(bootstrap, new_topic, group)
    command = [*COMMAND, "metrics", "--listen", "127.0.0.1:0", group, "--interval", "1s", "-b", bootstrap]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as exporter:
        assert exporter.stderr is not None
        url = exporter.stderr.readline().split()[-1]

        def lags() -> dict[str, float]:
            with urllib.request.urlopen(url, timeout=10) as answer:
                families = text_string_to_metric_families(answer.read().decode())
                return {
                    s.labels["partition"]: s.value
                    for family in families
                    for s in family.samples
                    if s.name == "streamgroups_partition_lag_records" and s.labels["topic"] == topic
                }

        assert lags() == {"0": 5, "1": 5}
        cli(bootstrap, "groups", "reset", group, "--topic", f"{topic}:1", "--to-latest", "--execute")
        wait_until(lambda: lags() == {"0": 5, "1": 0}, "the exporter polls again")
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(10) == 0


def test_an_address_in_use_is_a_usage_error(bootstrap: str) -> None:
    host, port = bootstrap.split(",")[0].split(":")
    command = [*COMMAND, "metrics", "--listen", f"{host}:{port}", "-b", bootstrap]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, "cannot be used: Address already in use" in result.stderr) == (2, True)
