"""The connection of a command to a cluster, and the options for it.

The commands under ``groups``, ``topics`` and ``cursors`` use it, and so do ``gaps`` and ``metrics``. The Kafka client
is imported, and connects, only when the command requires it. So errors in the rest of the command line are reported
without a network.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.variants import KafkaConnection
from streamgroups.contexts import Choice, Given, choose
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_admin.cluster import Cluster, connected
from streamgroups_cli.output import print_message

_OBJECTS_PER_COLLECTION = 200_000
_MIN_TIMEOUT_MS = 100

_SETTINGS_HELP = "A client setting by its Java or librdkafka name; repeatable. Overrides the file."


class FromVariable(str):
    """The value of an option that an environment variable has set. The command line is stronger."""


def _with_source(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    source = context.get_parameter_source(parameter.name or "")
    return FromVariable(value) if value is not None and source is not None and source.name == "ENVIRONMENT" else value


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
            envvar="STREAMGROUPS_CONTEXT",
            callback=_with_source,
            help="A connection of type kafka (streamgroups connections), instead of --bootstrap-server.",
            rich_help_panel="Cluster",
        ),
    ] = None
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            envvar="STREAMGROUPS_BOOTSTRAP_SERVER",
            callback=_with_source,
            help="One or more brokers of the cluster, separated by commas.",
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
        """The settings of ``--kafka``; see :func:`parse_settings`."""
        return parse_settings(self.kafka or [])

    def connection(self) -> Connection:
        """Applies the context that :func:`streamgroups.contexts.choose` names. ``--kafka`` overrides its settings.

        Raises:
            InvalidOption: if options contradict each other, or the context does not exist.
        """
        settings = self.settings
        context, context_variable = _by_source(self.context)
        bootstrap_server, bootstrap_variable = _by_source(self.bootstrap_server)
        chosen = choose(
            Given(
                context,
                bootstrap_server,
                self.command_config is not None,
                frozenset(map(str.lower, settings)),
                context_variable,
                bootstrap_variable,
            )
        )
        if chosen is not Choice.NONE:
            connections = load_connections()
            name = connections.current if isinstance(chosen, Choice) else chosen
            if name is not None:
                if context is None:
                    print_message(f"Context: {name}")
                return _connection(connections.typed(name, KafkaConnection), settings)
        return Connection(self.bootstrap_server, self.command_config, settings)


def _connection(found: KafkaConnection, settings: Mapping[str, str]) -> Connection:
    from streamgroups_kafka.client.connected import connected_settings

    values = connected_settings(found, {}).values
    return Connection(values.pop("bootstrap.servers", None), None, {**values, **settings})


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


def _by_source(value: str | None) -> tuple[str | None, str | None]:
    """Returns the value of an option as that of the command line, and as that of its environment variable."""
    return (None, str(value)) if isinstance(value, FromVariable) else (value, None)


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


def timeout_s(text: str) -> float:
    """Parses ``--timeout``, in seconds.

    Raises:
        InvalidOption: if it is not a duration, or is shorter than 100 ms, in which no broker responds.

    >>> timeout_s("500ms")
    0.5
    """
    timeout_ms = parse_duration_ms(text, option="--timeout")
    if timeout_ms < _MIN_TIMEOUT_MS:
        raise InvalidOption(f"Option '--timeout' is '{text}'.", remedy=f"It must be at least {_MIN_TIMEOUT_MS}ms.")
    return timeout_ms / 1_000


def parse_settings(assignments: list[str]) -> dict[str, str]:
    """Parses client settings from ``name=value`` texts.

    Raises:
        InvalidOption: if a text has no ``=`` or no name. The error does not contain the text, which can be a secret.

    >>> parse_settings(["security.protocol=SSL", "sasl.password=a=b"])
    {'security.protocol': 'SSL', 'sasl.password': 'a=b'}
    >>> parse_settings(["hunter2"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: A --kafka option is not NAME=VALUE. Write it as --kafka security.protocol=SSL.
    """
    parsed = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise InvalidOption(
                "A --kafka option is not NAME=VALUE.", remedy="Write it as --kafka security.protocol=SSL."
            )
        parsed[name.strip().removeprefix("kafka.")] = value
    return parsed
