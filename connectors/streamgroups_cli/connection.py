"""The connection of a command to a cluster, and the options for it.

The commands under ``groups``, ``topics`` and ``cursors`` use it, and so do ``gaps`` and ``metrics``. The Kafka client
is imported, and connects, only when the command requires it. So errors in the rest of the command line are reported
without a network.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.variants import KafkaConnection
from streamgroups.contexts import Choice, choose
from streamgroups.durations import duration, parse_duration_ms
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.option_values import folded, without_prefix
from streamgroups_admin.cluster import Cluster, connected
from streamgroups_cli.options import name_values
from streamgroups_cli.output import print_message

_OBJECTS_PER_COLLECTION = 200_000
_MIN_TIMEOUT_MS = 100
#: librdkafka rejects a longer timeout of an administrative request.
_MAX_TIMEOUT_MS = 3_600_000
#: The minimum interval between two polls.
_MIN_INTERVAL_MS = 100

_SERVERS, _ISOLATION = "bootstrap.servers", "isolation.level"
#: The environment variables. The command line is stronger.
_CONTEXT_VARIABLE, _BOOTSTRAP_VARIABLE = "STREAMGROUPS_CONTEXT", "STREAMGROUPS_BOOTSTRAP_SERVER"
_SETTINGS_HELP = "A client setting by its Java or librdkafka name; repeatable. Overrides the file."


@dataclass(frozen=True, slots=True)
class Connection:
    """The options of a command after its context was applied.

    Args:
        bootstrap_server: one or more brokers.
        file: a Java properties file.
        settings: client settings, which can contain secrets.
    """

    bootstrap_server: str | None
    file: Path | None
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options with the settings of a client."""

    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="A connection of type kafka (streamgroups connections), instead of --bootstrap-server. Default: the "
            f"environment variable {_CONTEXT_VARIABLE}.",
            rich_help_panel="Cluster",
        ),
    ] = None
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            help="One or more brokers of the cluster, separated by commas. Default: the environment variable "
            f"{_BOOTSTRAP_VARIABLE}.",
            rich_help_panel="Cluster",
        ),
    ] = None
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="A Java properties file, as for Kafka's tools.",
            rich_help_panel="Cluster",
        ),
    ] = None
    kafka: Annotated[
        list[str] | None, typer.Option("--kafka", metavar="NAME=VALUE", help=_SETTINGS_HELP, rich_help_panel="Cluster")
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings of ``--kafka``."""
        pairs = name_values("--kafka", self.kafka, example="security.protocol=SSL")
        return folded(without_prefix(pairs))

    def connection(self) -> Connection:
        """Applies the context that :func:`streamgroups.contexts.choose` names. ``--kafka`` overrides its settings.

        Raises:
            InvalidOption: if options contradict each other, or the context does not exist.
        """
        settings = self.settings
        bootstrap_variable = os.environ.get(_BOOTSTRAP_VARIABLE)
        named_by = {
            "--bootstrap-server": self.bootstrap_server is not None,
            "--command-config": self.command_config is not None,
            f"--kafka {_SERVERS}": _SERVERS in settings,
        }
        chosen = choose(
            self.context,
            [option for option, is_given in named_by.items() if is_given],
            context_variable=os.environ.get(_CONTEXT_VARIABLE),
            bootstrap_variable=bootstrap_variable,
        )
        if chosen is not Choice.NONE:
            connections = load_connections()
            name = connections.current if isinstance(chosen, Choice) else chosen
            if name is not None:
                if self.context is None:
                    print_message(f"Context: {name}")
                return _connection(connections.typed(name, KafkaConnection), settings)
        return Connection(self.bootstrap_server or bootstrap_variable, self.command_config, settings)


def _connection(found: KafkaConnection, settings: Mapping[str, str]) -> Connection:
    from streamgroups_kafka.client.connected import connected_settings

    values = connected_settings(found, {}).values
    return Connection(values.pop(_SERVERS, None), None, {**values, **settings})


@dataclass(frozen=True, slots=True)
class Connect(ClusterOptions):
    """The options of a command that connects to a cluster. The command calls it to connect."""

    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Timeout for requests to the cluster.", rich_help_panel="Cluster")
    ] = "10s"
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the number of requests.", rich_help_panel="Cluster")
    ] = False

    @contextmanager
    def __call__(self) -> Iterator[Cluster]:
        """Connects. The end of the ``with`` block closes the connection."""
        # Tens of thousands of offsets live until the end. Repeated garbage collections of them take a fifth of the time
        # of a command.
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        started_s = time.monotonic()
        try:
            to, limit_s = self.connection(), timeout_s(self.timeout)
            with open_cluster(to.bootstrap_server, to.file, to.settings, limit_s) as cluster:
                try:
                    yield cluster
                finally:
                    if self.verbose:
                        _print_duration(cluster.requests, time.monotonic() - started_s)
        except StreamGroupsError as e:
            from streamgroups_kafka.client.properties_file import as_in_a_file

            raise as_in_a_file(e) from None


_Connect = TypeVar("_Connect", bound=Connect)


def read_committed(connect: _Connect) -> _Connect:
    """Returns the connection with committed records only, unless the user has set the isolation level."""
    if _ISOLATION in connect.settings:
        return connect
    return replace(connect, kafka=[f"{_ISOLATION}=read_committed", *(connect.kafka or [])])


@contextmanager
def connect_to(name: str, timeout_s: float) -> Iterator[Cluster]:
    """Connects to the cluster of a named connection. The end of the ``with`` block closes the connection.

    Args:
        name: the name of a connection of type ``kafka``.
        timeout_s: the timeout for requests, in seconds.

    Raises:
        InvalidOption: if there is no such connection.
    """
    to = _connection(load_connections().typed(name, KafkaConnection), {})
    with open_cluster(to.bootstrap_server, to.file, to.settings, timeout_s) as cluster:
        yield cluster


def _print_duration(requests: Mapping[str, int], elapsed_s: float) -> None:
    each = ", ".join(f"{name} {count}" for name, count in sorted(requests.items()))
    count = sum(requests.values())
    print_message(f"{count} request{'' if count == 1 else 's'} in {elapsed_s:.3f} s: {each}.")


@contextmanager
def open_cluster(
    bootstrap_server: str | None, file: Path | None, settings: Mapping[str, str], timeout_s: float
) -> Iterator[Cluster]:
    """Connects to a real cluster. Tests replace this function."""
    from streamgroups_kafka.client.properties_file import command_config

    config = command_config(bootstrap_server, file, settings)
    with connected(config, timeout_s, notify=print_message) as cluster:
        yield cluster


def interval_s(text: str, option: str = "--interval") -> float:
    """Parses an interval between polls, in seconds.

    Raises:
        InvalidOption: if it is not a duration, or is shorter than 100 ms: polls without a pause would load the brokers.

    >>> interval_s("2s")
    2.0
    """
    interval_ms = parse_duration_ms(text, option=option)
    if interval_ms < _MIN_INTERVAL_MS:
        raise InvalidOption(f"Option '{option}' is '{text}'.", remedy=f"It must be at least {_MIN_INTERVAL_MS}ms.")
    return interval_ms / 1_000


def timeout_s(text: str) -> float:
    """Parses ``--timeout``, in seconds.

    Raises:
        InvalidOption: if it is not a duration, is shorter than 100 ms, in which no broker responds, or longer than 1 hour.

    >>> timeout_s("500ms")
    0.5
    """
    timeout_ms = parse_duration_ms(text, option="--timeout")
    if timeout_ms < _MIN_TIMEOUT_MS:
        raise InvalidOption(f"Option '--timeout' is '{text}'.", remedy=f"It must be at least {_MIN_TIMEOUT_MS}ms.")
    if timeout_ms > _MAX_TIMEOUT_MS:
        raise InvalidOption(
            f"Option '--timeout' is '{text}'.", remedy=f"It must be at most {duration(_MAX_TIMEOUT_MS)}."
        )
    return timeout_ms / 1_000
