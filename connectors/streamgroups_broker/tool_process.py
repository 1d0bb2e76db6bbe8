"""Replaces this process by one of Kafka's own tools, from the jars of the embedded broker.

Called by ``streamgroups broker tool``. A process that is replaced passes standard input, signals and the exit code on.
Source: ``execve(2)``; the ``bin/kafka-*.sh`` scripts of Apache Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from streamgroups_broker import _ivy
from streamgroups_broker._cache import cache_root, kafka_jars
from streamgroups_broker._java import find_java
from streamgroups_broker._jvm import TOOL_LOGGING, tool_command_line
from streamgroups_broker._releases import main_class
from streamgroups_broker._tools import tool_command


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
    jars = kafka_jars(version, lambda directory, version: _ivy.fill(directory, version, java))
    command = tool_command_line(java, jars, _logging(), (main_class(name, version), *rest))
    os.execv(command[0], command)


def _logging() -> Path:
    """Writes the logging configuration of tools beside the jars, so that other tools can read it meanwhile."""
    file = cache_root() / "log4j2-tools.xml"
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(TOOL_LOGGING, encoding="utf-8")
    os.replace(new, file)
    return file.parent
