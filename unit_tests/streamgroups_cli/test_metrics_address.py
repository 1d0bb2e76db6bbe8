"""Workers on one host serve their metrics at different ports of a range."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_cli.metrics_address import metrics_listener, parse_ports

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another process uses."""
    with socket.socket() as used:
        used.bind((HOST, 0))
        used.listen()
        yield used.getsockname()[1]


def test_each_worker_serves_its_metrics_at_a_free_port_of_the_range(taken: int) -> None:
    address = parse_ports(f"{HOST}:{taken}-{min(taken + 20, 65_535)}", "--metrics")
    with ExitStack() as stack:
        listeners = [stack.enter_context(metrics_listener(address)) for _ in range(2)]
        addresses = [it.address for it in listeners if it is not None]
        assert len({*addresses, f"{HOST}:{taken}"}) == 3
        assert all(int(str(it).rpartition(":")[2]) in address[1] for it in addresses)


def test_a_range_without_a_free_port_is_rejected_with_the_remedy(taken: int) -> None:
    with (
        pytest.raises(InvalidOption, match=rf"{HOST}:{taken}: .*a range with a port for each worker of this host"),
        metrics_listener(parse_ports(f"{HOST}:{taken}-{taken}", "--metrics")),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    ["9309", "host:9309-", "host:-9309", "host:9309-70000", "host:0-9", ":9309-9312", "host:" + "9" * 5_000],
    ids=lambda text: text[:20],
)
def test_what_is_no_address_is_rejected(text: str) -> None:
    with pytest.raises(InvalidOption, match="--metrics is"):
        parse_ports(text, "--metrics")


def test_a_host_can_contain_a_hyphen() -> None:
    assert parse_ports("my-host:9309", "--metrics") == ("my-host", range(9309, 9310))
