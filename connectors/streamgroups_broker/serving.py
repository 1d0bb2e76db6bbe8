"""Runs a broker until a signal stops it, and replaces this process by one of Kafka's own tools, from the jars of the broker.

Used by ``streamgroups broker run`` and ``streamgroups broker tool``. A process that is replaced passes standard input, signals
and the exit code on. Source: ``signal(7)``, ``execve(2)``; the ``bin/kafka-*.sh`` scripts of Apache Kafka.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from streamgroups_broker._cache import cache_root
from streamgroups_broker._ivy import release_jars
from streamgroups_broker._java import find_java
from streamgroups_broker._jvm import TOOL_LOGGING, tool_command_line
from streamgroups_broker._releases import main_class
from streamgroups_broker._tools import tool_command
from streamgroups_broker.embedded import EmbeddedKafka

_POLL_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(kafka: EmbeddedKafka, ready: Callable[[EmbeddedKafka], None]) -> None:
    """Starts a broker, and stops it in an orderly way at SIGINT, SIGTERM or SIGHUP.

    Args:
        kafka: the broker, not yet started.
        ready: called when it serves requests.

    Raises:
        EmbeddedBrokerError: if it did not start, or ended by itself.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals_raise())
        stack.callback(kafka.stop)
        # From here a second Ctrl-C must not interrupt the orderly stop.
        stack.callback(_ignore_signals)
        try:
            kafka.start()
            ready(kafka)
            while True:
                kafka.require_running()
                time.sleep(_POLL_S)
        except _Stopped:
            return


class _Stopped(BaseException):
    """A signal requested the stop of the serving process."""


@contextmanager
def _signals_raise() -> Iterator[None]:
    def request(number: int, frame: FrameType | None) -> None:
        raise _Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, request) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def become_tool(tool: str, args: Sequence[str], bootstrap_servers: str, version: str) -> NoReturn:
    """Runs a tool instead of this process. Downloads the jars at the first use.

    Args:
        tool: its name, as in ``consumer-groups`` or ``kafka-consumer-groups.sh``.
        args: its arguments.
        bootstrap_servers: the brokers, unless the arguments name them.
        version: the Kafka release of the tool.

    Raises:
        InvalidOption: if Kafka has no such tool.
        EmbeddedBrokerError: if there is no Java, or the jars cannot be downloaded.
    """
    name, *rest = tool_command(tool, args, bootstrap_servers)
    java = find_java()
    jars = release_jars(version, lambda: java)
    command = tool_command_line(java, jars, _logging(), (main_class(name, version), *rest))
    os.execv(command[0], command)


def _logging() -> Path:
    """Writes the logging configuration of tools beside the jars, so that other tools can read it meanwhile."""
    file = cache_root() / "log4j2-tools.xml"
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(TOOL_LOGGING, encoding="utf-8")
    os.replace(new, file)
    return file.parent
