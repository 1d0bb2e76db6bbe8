"""The addresses at which processes serve metrics for Prometheus. ``metrics``, ``worker run`` and ``processors run`` use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups.option_values import shown_value, whole_number
from streamgroups_cli.output import print_message

if TYPE_CHECKING:
    from streamgroups_spark.ops.metrics_listener import MetricsListener

MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT[-PORT]",
        help="Serve metrics of the queries for Prometheus at this address, at the first free port of a range; port 0 selects any.",
        show_default=False,
    ),
]


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Parses a host and a port.

    Args:
        text: the text.
        option: the name of the option, for the error.

    Raises:
        InvalidOption: if the text is not a host and a port.

    >>> parse_address("127.0.0.1:9308", "--listen"), parse_address("[::1]:0", "--listen")
    (('127.0.0.1', 9308), ('::1', 0))
    >>> parse_address("9308", "--listen")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --listen is '9308', which is not HOST:PORT. Write it as 127.0.0.1:9308.
    """
    host, colon, digits = text.rpartition(":")
    try:
        port = whole_number(digits, most=65535)
    except ValueError:
        colon = ""
    if not colon or not host:
        what = f"{option} is '{shown_value(text)}', which is not HOST:PORT."
        raise InvalidOption(what, remedy="Write it as 127.0.0.1:9308.")
    return host.removeprefix("[").removesuffix("]"), port


def parse_ports(text: str, option: str) -> tuple[str, range]:
    """Parses a host and a port, or a range of ports: several workers on one host can have the same option.

    Args:
        text: the text.
        option: the name of the option, for the error.

    Raises:
        InvalidOption: if the text is not a host and a port, or a range of ports.

    >>> parse_ports("0.0.0.0:9309", "--metrics"), parse_ports("[::1]:9309-9312", "--metrics")
    (('0.0.0.0', range(9309, 9310)), ('::1', range(9309, 9313)))
    >>> parse_ports("0.0.0.0:9312-9309", "--metrics")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --metrics is '0.0.0.0:9312-9309', whose range of ports has no port. Write the \
lower port first, such as 0.0.0.0:9309-9312.
    """
    address, dash, last = text.rpartition("-")
    if not dash or not (last.isascii() and last.isdigit()):
        host, port = parse_address(text, option)
        return host, range(port, port + 1)
    host, port = parse_address(address, option)
    _, last_port = parse_address(f"{address.rpartition(':')[0]}:{last}", option)
    if not 0 < port <= last_port:
        raise InvalidOption(
            f"{option} is '{text}', whose range of ports has no port.",
            remedy="Write the lower port first, such as 0.0.0.0:9309-9312.",
        )
    return host, range(port, last_port + 1)


@contextmanager
def metrics_listener(address: tuple[str, range] | None) -> Iterator[MetricsListener | None]:
    """Serves metrics of the queries of this process; yields ``None`` without an address.

    Args:
        address: the host and the ports. The first free one is used.

    Raises:
        InvalidOption: if no port can be used.
    """
    if address is None:
        yield None
        return
    host, ports = address
    with _listener(host, ports) as listener:
        yield listener


def _listener(host: str, ports: range) -> MetricsListener:
    from streamgroups_spark.ops.metrics_listener import MetricsListener

    for port in ports[:-1]:
        with suppress(InvalidOption):
            return MetricsListener(port=port, host=host)
    try:
        return MetricsListener(port=ports[-1], host=host)
    except InvalidOption as e:
        raise InvalidOption(
            e.what,
            remedy="Choose another port, or a range with a port for each worker of this host, such as 9309-9312; 0 selects a "
            "free port.",
        ) from e


def print_address(listener: MetricsListener | None) -> None:
    """Prints the address of the metrics, if they are served."""
    if listener is not None:
        print_message(f"Metrics are available at http://{listener.address}/metrics")
