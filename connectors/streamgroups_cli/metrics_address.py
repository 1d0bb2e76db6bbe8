"""The addresses at which processes serve metrics for Prometheus. ``metrics``, ``worker run`` and ``processors run`` use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups_cli.output import print_message

if TYPE_CHECKING:
    from streamgroups_spark.ops.metrics_listener import MetricsListener

MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve metrics of the queries for Prometheus at this address; port 0 selects a free port.",
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
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidOption(f"{option} is '{text}', which is not HOST:PORT.", remedy="Write it as 127.0.0.1:9308.")
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def metrics_listener(address: tuple[str, int] | None) -> Iterator[MetricsListener | None]:
    """Serves metrics of the queries of this process; yields ``None`` without an address.

    Args:
        address: the host and the port.

    Raises:
        InvalidOption: if the address cannot be used.
    """
    if address is None:
        yield None
        return
    from streamgroups_spark.ops.metrics_listener import MetricsListener

    host, port = address
    with MetricsListener(port=port, host=host) as listener:
        yield listener


def print_address(listener: MetricsListener | None) -> None:
    """Prints the address of the metrics, if they are served."""
    if listener is not None:
        print_message(f"Metrics are available at http://{listener.address}/metrics")
