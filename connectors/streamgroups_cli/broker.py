"""``streamgroups broker``: runs a real Kafka broker on this machine.

Part of the command line (``streamgroups_cli``), which calls ``streamgroups_broker``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups_cli.options import name_values

if TYPE_CHECKING:
    from streamgroups_broker.embedded import EmbeddedKafka

app = typer.Typer(help="A real Kafka broker without Docker, for demos and tests.", no_args_is_help=True)

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
Version = Annotated[str | None, typer.Option("--kafka-version", help="Kafka release, 3.7.0 or newer.")]
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
) -> None:
    """Run a broker in the foreground, until Ctrl-C."""
    settings = dict(name_values("--property", properties, example="log.retention.hours=1"))
    from streamgroups_broker import DEFAULT_KAFKA_VERSION, EmbeddedKafka
    from streamgroups_broker.serving import serve

    ports = None if port == 0 else range(port, port + nodes)
    serve(EmbeddedKafka(nodes, data_dir, kafka_version or DEFAULT_KAFKA_VERSION, ports, settings), _announce)


@app.command(context_settings={"allow_interspersed_args": False})
def tool(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="As in consumer-groups, for kafka-consumer-groups.sh.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the tool, unchanged.")
    ] = None,
    bootstrap_server: Annotated[
        str,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            envvar="STREAMGROUPS_BOOTSTRAP_SERVER",
            help="The brokers, unless ARGUMENT names them.",
        ),
    ] = "localhost:9092",
    kafka_version: Version = None,
) -> None:
    """Run one of Kafka's own command line tools, from the jars of the embedded broker.

    Example: streamgroups broker tool consumer-groups --describe --group flight-board
    """
    from streamgroups_broker import DEFAULT_KAFKA_VERSION
    from streamgroups_broker.serving import become_tool

    become_tool(name, arguments or (), bootstrap_server, kafka_version or DEFAULT_KAFKA_VERSION)


def _announce(kafka: EmbeddedKafka) -> None:
    print(f"Kafka {kafka.version} is running with data in {kafka.data_dir}. Ctrl-C stops it.")
    print(f"bootstrap servers: {kafka.bootstrap_servers}", flush=True)
