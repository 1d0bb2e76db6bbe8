"""``streamgroups metrics``: a Prometheus exporter for groups and processors, its Grafana dashboard and alert rules.

``streamgroups_cli.command_line`` imports it; :mod:`streamgroups_admin.reports.exporter` exports. Source: SEMANTICS O3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from importlib import resources
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.groups.offset_audit import GroupAudit
from streamgroups.instances.entries import check_name
from streamgroups.instances.overview import ReplicaView, overview
from streamgroups.monitoring.monitor import Monitor, WatchedGroup
from streamgroups.monitoring.snapshots import list_all
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.auditing import audit_groups
from streamgroups_cli.connection import Connect, interval_s, read_committed, timeout_s
from streamgroups_cli.count_limit import POLL_MIB, CountLimitOption, count_bytes
from streamgroups_cli.groups.scope import GroupsOrAllArgument, named_groups
from streamgroups_cli.groups.unlisted_groups import UnlistedGroups
from streamgroups_cli.instance_log import open_log
from streamgroups_cli.lasting_connection import LastingConnection, LastingMonitor
from streamgroups_cli.metrics_address import parse_address
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.process_signals import Termination

if TYPE_CHECKING:
    from streamgroups.instances.ports import EntryReader
    from streamgroups_admin.reports.exporter import AuditCollector

_AUDIT_WINDOW = "1d"

Refresh: TypeAlias = Callable[[], StreamGroupsError | None]


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
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance", "-i", metavar="NAME", help="Also export the processors of this instance.", show_default=False
        ),
    ] = None,
    audit_interval: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Interval between audits of the groups (groups audit). Default: no audits."
        ),
    ] = None,
    audit_window: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help=f"Time window of an audit. Default: {_AUDIT_WINDOW}.", show_default=False
        ),
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print the Grafana dashboard and exit.")] = False,
    alert_rules: Annotated[
        bool, typer.Option("--alert-rules", help="Print alert rules for Prometheus, in YAML, and exit.")
    ] = False,
) -> None:
    """Export members, state and lag of groups to Prometheus.

    With --instance also the states of its processors, and the lag, watermark and duration of their last batches. All series of
    a processor have the label processor, with the value <instance>.<name>.
    """
    if dashboard and alert_rules:
        raise InvalidOption("--dashboard and --alert-rules print different files.", remedy="Use one of them.")
    if dashboard or alert_rules:
        print(dashboard_json() if dashboard else alert_rules_yaml(), end="")
        return
    groups = named_groups(groups)
    host, port = parse_address(listen, "--listen")
    poll_s = interval_s(interval)
    window_ms = parse_duration_ms(window, option="--window")
    if instance is not None:
        check_name(instance, "an instance")
    audit_s = None if audit_interval is None else interval_s(audit_interval, "--audit-interval")
    if audit_window is not None and audit_s is None:
        raise InvalidOption("--audit-window is given without --audit-interval.", remedy="Add --audit-interval 1h.")
    audit_window_ms = parse_duration_ms(audit_window or _AUDIT_WINDOW, option="--audit-window")
    with ExitStack() as stack:
        connection = stack.enter_context(LastingConnection(connect))
        replicas = stack.enter_context(closing(_Replicas(connection, instance, timeout_s(connect.timeout))))
        from prometheus_client import CollectorRegistry, start_http_server

        from streamgroups_admin.reports.exporter import GroupCollector, Polls, processor_groups

        limit_bytes = count_bytes(count_limit)
        monitor = LastingMonitor(
            connection,
            lambda it: Monitor(
                it.groups, it.topics, it.now_ms, window_ms=window_ms, count_bytes=limit_bytes, gaps=True
            ),
        )
        unlisted = UnlistedGroups()

        def poll() -> Sequence[WatchedGroup]:
            found = monitor.poll(groups)
            # Of a named group, the recorded gaps can be missing.
            connection.use(unlisted.check)
            return found

        polls = Polls(poll, lambda: connection.requests, replicas=replicas.read)
        failure = polls.refresh()
        if failure is not None:
            raise failure
        registry = CollectorRegistry()
        registry.register(GroupCollector(polls, instance))
        repeated: list[tuple[float, Refresh]] = [(poll_s, polls.refresh)]
        if audit_s is not None:
            auditing = stack.enter_context(LastingConnection(read_committed(connect)))
            audits = _audits(auditing, groups, audit_window_ms, lambda: processor_groups(instance, polls.replicas))
            registry.register(audits)
            if (failure := audits.refresh()) is not None:
                raise failure
            repeated.append((audit_s, audits.refresh))
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as e:
            raise InvalidOption(
                f"--listen {listen} cannot be used: {e.strerror}.", remedy="Use another address."
            ) from e
        print_message(f"Metrics are available at http://{host}:{server.server_port}/metrics")
        try:
            _refresh_until_stopped(repeated)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Replicas:
    """Reads the new entries of an instance. After a failure it reads the topic of the instance from its start.

    Args:
        connection: the connection.
        instance: the instance; without one there are no replicas.
        timeout_s: the timeout of a read, in seconds.
    """

    def __init__(self, connection: LastingConnection, instance: str | None, timeout_s: float) -> None:
        self._connection, self._instance, self._timeout_s = connection, instance, timeout_s
        self._reader: EntryReader | None = None

    def read(self) -> Sequence[ReplicaView]:
        """Returns the replicas of the processors of the instance."""
        instance = self._instance
        if instance is None:
            return ()
        try:
            return self._connection.use(lambda cluster: self._read(cluster, instance))
        except Exception:
            self.close()
            raise

    def _read(self, cluster: Cluster, instance: str) -> Sequence[ReplicaView]:
        if self._reader is None:
            self._reader = open_log(cluster, instance).reader()
        self._reader.read_to_end(self._timeout_s)
        return overview(instance, self._reader.state, cluster.now_ms()).replicas

    def close(self) -> None:
        """Closes the reader."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _audits(
    connection: LastingConnection,
    groups: Sequence[str] | None,
    window_ms: int,
    processors: Callable[[], Collection[str]] = tuple,
) -> AuditCollector:
    """Audits the named groups, or all groups to which members of this library have committed."""
    from streamgroups_admin.reports.exporter import AuditCollector
    from streamgroups_kafka.client.clock import now_ms

    def audit(cluster: Cluster) -> list[GroupAudit]:
        # The polls warn of groups that the list omits.
        names = list(groups) if groups else [it.group_id for it in list_all(cluster.groups)]
        found = audit_groups(cluster, names, cluster.now_ms() - window_ms)
        return found if groups else [it for it in found if any(of.forms for of in it.partitions)]

    return AuditCollector(lambda: connection.use(audit), now_ms, processors)


def _refresh_until_stopped(repeated: Sequence[tuple[float, Refresh]]) -> None:
    """Refreshes each result at its interval, in seconds."""
    termination = Termination()
    termination.record_signals()
    failed: set[int] = set()
    due_s = [time.monotonic() + pause_s for pause_s, _ in repeated]
    while not termination.wait_until(min(due_s)):
        i = due_s.index(min(due_s))
        pause_s, refresh = repeated[i]
        failure = refresh()
        due_s[i] = time.monotonic() + pause_s
        if failure is not None and i not in failed:
            print_message(f"Warning: {failure}")
        elif failure is None and i in failed:
            print_message("The cluster is reachable again.")
        failed = failed - {i} if failure is None else failed | {i}


def dashboard_json() -> str:
    """Returns the Grafana dashboard, which can be imported with a Prometheus data source."""
    return (resources.files("streamgroups_cli") / "grafana_dashboard.json").read_text(encoding="utf-8")


def alert_rules_yaml() -> str:
    """Returns the alert rules, as a file for ``rule_files`` of Prometheus."""
    return (resources.files("streamgroups_cli") / "prometheus_alerts.yml").read_text(encoding="utf-8")
