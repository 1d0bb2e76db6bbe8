"""``streamgroups metrics``: a Prometheus exporter for the groups of a cluster, its Grafana dashboard and alert rules.

``streamgroups_cli.command_line`` imports it; :mod:`streamgroups_admin.reports.exporter` exports. Source: SEMANTICS O3.
"""

from __future__ import annotations

import signal
import threading
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.monitoring.monitor import Monitor
from streamgroups_cli.connection import Connect
from streamgroups_cli.count_limit import POLL_MIB, CountLimitOption, count_bytes
from streamgroups_cli.groups.scope import GroupsOrAllArgument
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message

if TYPE_CHECKING:
    from streamgroups_admin.reports.exporter import Polls


@with_options
def metrics(
    connect: Connect,
    groups: GroupsOrAllArgument = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 selects a free port.")
    ] = "127.0.0.1:9308",
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Interval between polls of the cluster.")] = "15s",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Time window of the lag states; the first one needs half of it.")
    ] = "5m",
    count_limit: CountLimitOption = POLL_MIB,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the Grafana dashboard and exit.")] = False,
    alert_rules: Annotated[
        bool, typer.Option("--alert-rules", help="Print alert rules for Prometheus, in YAML, and exit.")
    ] = False,
) -> None:
    """Export members, state and lag of groups to Prometheus."""
    if dashboard and alert_rules:
        raise InvalidOption("--dashboard and --alert-rules print different files.", remedy="Use one of them.")
    if dashboard or alert_rules:
        print(dashboard_json() if dashboard else alert_rules_yaml(), end="")
        return
    host, port = parse_address(listen)
    interval_s = parse_duration_ms(interval, option="--interval") / 1000
    window_ms = parse_duration_ms(window, option="--window")
    with connect() as cluster:
        from prometheus_client import CollectorRegistry, start_http_server

        from streamgroups_admin.reports.exporter import GroupCollector, Polls

        limit_bytes = count_bytes(count_limit)
        monitor = Monitor(
            cluster.groups, cluster.topics, cluster.now_ms, window_ms=window_ms, count_bytes=limit_bytes, gaps=True
        )
        polls = Polls(lambda: monitor.poll(groups), lambda: sum(cluster.requests.values()))
        failure = polls.refresh()
        if failure is not None:
            raise failure
        registry = CollectorRegistry()
        registry.register(GroupCollector(polls))
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as e:
            raise InvalidOption(
                f"--listen {listen} cannot be used: {e.strerror}.", remedy="Use another address."
            ) from e
        print_message(f"Metrics are available at http://{host}:{server.server_port}/metrics")
        try:
            _refresh_until_stopped(polls, interval_s)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _refresh_until_stopped(polls: Polls, interval_s: float) -> None:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    failed = False
    while not stopping.wait(interval_s):
        failure = polls.refresh()
        if failure is not None and not failed:
            print_message(f"Warning: {failure}")
        elif failure is None and failed:
            print_message("The cluster is reachable again.")
        failed = failure is not None


def parse_address(text: str) -> tuple[str, int]:
    """Parses a host and a port.

    Raises:
        InvalidOption: if the text is not a host and a port.

    >>> parse_address("127.0.0.1:9308"), parse_address("[::1]:0")
    (('127.0.0.1', 9308), ('::1', 0))
    >>> parse_address("9308")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --listen is '9308', which is not HOST:PORT. Write it as 127.0.0.1:9308.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidOption(f"--listen is '{text}', which is not HOST:PORT.", remedy="Write it as 127.0.0.1:9308.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def dashboard_json() -> str:
    """Returns the Grafana dashboard, which can be imported with a Prometheus data source."""
    return (resources.files("streamgroups_cli") / "grafana_dashboard.json").read_text(encoding="utf-8")


def alert_rules_yaml() -> str:
    """Returns the alert rules, as a file for ``rule_files`` of Prometheus."""
    return (resources.files("streamgroups_cli") / "prometheus_alerts.yml").read_text(encoding="utf-8")
