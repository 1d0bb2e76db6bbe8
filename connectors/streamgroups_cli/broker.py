"""``streamgroups broker``: runs a real Kafka broker on this machine, in the foreground or in the background.

Part of the command line (``streamgroups_cli``), which calls ``streamgroups_broker``.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from platformdirs import user_state_path

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.tables import Column, Table
from streamgroups_cli.output import Output, OutputOption, emit

if TYPE_CHECKING:
    from streamgroups_broker.background import Running
    from streamgroups_broker.embedded import EmbeddedKafka

app = typer.Typer(help="A real Kafka broker without Docker, for demos and tests.", no_args_is_help=True)

#: The first entry of the path is the working directory, in which any file can have the name of a module.
_RUN_AGAIN = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "from streamgroups_cli import main; sys.argv[0] = 'streamgroups'; main()"
)


Port = Annotated[
    int,
    typer.Option(
        help="Client port of the first node; further nodes use the next ports. 0 selects free ports.", min=0, max=65533
    ),
]
Nodes = Annotated[int, typer.Option(help="Number of nodes; each is broker and controller.", min=1, max=3)]
DataDir = Annotated[
    Path | None, typer.Option(help="Directory for data and logs. Default: a temporary directory, deleted at the end.")
]
Version = Annotated[str | None, typer.Option("--kafka-version", help="Kafka release, 4.0.0 or newer.")]
Property = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="Kafka broker property; repeatable.")
]


@app.command()
def run(
    port: Port = 9092,
    nodes: Nodes = 1,
    data_dir: DataDir = None,
    kafka_version: Version = None,
    properties: Property = None,
    record_in: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a broker in the foreground, until Ctrl-C."""
    from streamgroups_broker.background import serve

    kafka = _broker(port, nodes, data_dir, kafka_version, parse_properties(properties or []))
    serve(kafka, _announce, record_in)


@app.command()
def start(
    port: Port = 9092,
    nodes: Nodes = 1,
    data_dir: DataDir = None,
    kafka_version: Version = None,
    properties: Property = None,
    output: OutputOption = Output.table,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Timeout; the first start also downloads Kafka.")
    ] = "10m",
) -> None:
    """Start a broker in the background."""
    from streamgroups_broker.background import launch

    parse_properties(properties or [])
    timeout_ms = parse_duration_ms(timeout, option="--timeout")
    state = _state(data_dir).absolute()
    arguments = ["broker", "run", "--port", str(port), "--nodes", str(nodes), "--record-in", str(state)]
    if data_dir is not None:
        arguments += ["--data-dir", str(data_dir.absolute())]
    if kafka_version is not None:
        arguments += ["--kafka-version", kafka_version]
    for assignment in properties or []:
        arguments += ["--property", assignment]
    _print_running(launch([sys.executable, "-c", _RUN_AGAIN, *arguments], state, timeout_ms / 1_000), output)


@app.command()
def stop(data_dir: DataDir = None) -> None:
    """Stop the broker in the background. Succeeds if none is running."""
    from streamgroups_broker import background

    stopped = background.stop(_state(data_dir))
    print("No broker is running." if stopped is None else f"Stopped the broker at {stopped.bootstrap_servers}.")


@app.command()
def status(data_dir: DataDir = None, output: OutputOption = Output.table) -> None:
    """Show the broker in the background. Exit code 0 if it is running, 1 if not."""
    from streamgroups_broker import background

    running = background.find(_state(data_dir))
    if running is None:
        emit(
            output,
            document=lambda: {"running": False},
            tables=lambda: [Table([], [], heading="No broker is running.")],
            flat=lambda: Table([Column("running")], [["no"]]),
        )
        raise typer.Exit(1)
    _print_running(running, output)


def parse_properties(assignments: list[str]) -> dict[str, str]:
    """Parses properties from ``name=value`` texts.

    Raises:
        InvalidOption: if a text has no ``=`` or no name.

    >>> parse_properties(["num.io.threads=8", "ssl.cipher.suites=a=b"])
    {'num.io.threads': '8', 'ssl.cipher.suites': 'a=b'}
    """
    parsed = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise InvalidOption(
                f"--property {assignment!r} is not NAME=VALUE.", remedy="Write it as log.retention.hours=1."
            )
        parsed[name.strip()] = value
    return parsed


def _state(data_dir: Path | None) -> Path:
    """The directory of a background broker's record: its data directory, else the user's state directory."""
    return data_dir or user_state_path("streamgroups")


def _broker(
    port: int, nodes: int, data_dir: Path | None, version: str | None, properties: dict[str, str]
) -> EmbeddedKafka:
    from streamgroups_broker import DEFAULT_KAFKA_VERSION, EmbeddedKafka

    ports = None if port == 0 else range(port, port + nodes)
    return EmbeddedKafka(nodes, data_dir, version or DEFAULT_KAFKA_VERSION, ports, properties)


def _announce(kafka: EmbeddedKafka) -> None:
    print(f"Kafka {kafka.version} is running with data in {kafka.data_dir}. Ctrl-C stops it.")
    print(f"bootstrap servers: {kafka.bootstrap_servers}", flush=True)


def _print_running(running: Running, output: Output) -> None:
    facts = dataclasses.asdict(running)
    emit(
        output,
        document=lambda: {"running": True, **facts},
        tables=lambda: [
            Table([Column("property"), Column("value")], [[n.replace("_", " "), v] for n, v in facts.items()])
        ],
        flat=lambda: Table([Column("running"), *map(Column, facts)], [["yes", *facts.values()]]),
    )
