"""``streamgroups connections test``: connects, and reports what this user may do.

``streamgroups_cli.connections`` imports it. The probes of the connectors check the systems. Without ``--write`` they change
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.variants import (
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
)
from streamgroups.doctor.check_results import CheckResult, problem
from streamgroups.errors import InvalidOption, MissingExtra, StreamGroupsError
from streamgroups_cli.check_results import emit_results
from streamgroups_cli.output import Output, OutputOption

_TRANSACTIONAL_ID = "streamgroups-connections-test"


def check_access(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Connection.", show_default=False)],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="kafka: the ACLs of a topic; repeatable.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="kafka: the ACLs of a group; repeatable.")
    ] = None,
    transactional_id: Annotated[
        str, typer.Option(metavar="ID", help="kafka: the id of the transaction of --write.")
    ] = _TRANSACTIONAL_ID,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="postgres, delta: the privileges of a table; repeatable."),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="SUBJECT", help="schema-registry: whether a subject exists; repeatable."),
    ] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also write: abort a transaction (kafka), create a table and roll it back (postgres), create a file and "
            "delete it (delta).",
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Connect with a connection, and show what this user may do. Without --write it changes nothing. Prints no secrets.

    Each result is ok, a warning or a problem, with a remedy. Exit code: 0 without a problem, 1 with one, 2 wrong usage.
    """
    connection = load_connections().get(name)
    topic, group, table, subject = (list(dict.fromkeys(it or ())) for it in (topic, group, table, subject))
    given = {"--topic": topic, "--group": group, "--table": table, "--subject": subject}
    _reject_others(connection, [option for option, values in given.items() if values])
    _reject_empty(given)
    try:
        match connection:
            case KafkaConnection():
                found = _kafka(connection, topic, group, transactional_id if write else None)
            case PostgresConnection():
                from streamgroups_sinks.postgres.probe import probe_database

                found = probe_database(connection, table, writes=write)
            case DeltaConnection():
                from streamgroups_sinks.delta.probe import probe_location

                found = probe_location(connection, table, writes=write)
            case SchemaRegistryConnection():
                found = _registry(connection, subject)
    except (InvalidOption, MissingExtra):
        raise
    except StreamGroupsError as e:
        found = [problem("login", e.what, e.remedy)]
    emit_results(found, output)


_OPTIONS: dict[type[Connection], tuple[str, ...]] = {
    KafkaConnection: ("--topic", "--group"),
    PostgresConnection: ("--table",),
    DeltaConnection: ("--table",),
    SchemaRegistryConnection: ("--subject",),
}


def _reject_others(connection: Connection, given: Sequence[str]) -> None:
    others = [option for option in given if option not in _OPTIONS[type(connection)]]
    if others:
        raise InvalidOption(
            f"Connection '{connection.name}' is of type {connection.type}, which has no {others[0].removeprefix('--')}.",
            remedy=f"Leave out {others[0]}.",
        )


def _reject_empty(given: Mapping[str, Sequence[str] | None]) -> None:
    empty = [option for option, names in given.items() if not all(name.strip() for name in names or ())]
    if empty:
        raise InvalidOption(f"A name of {empty[0]} is empty.", remedy="Write a name, or leave out the option.")


def _kafka(
    connection: KafkaConnection, topics: Sequence[str], groups: Sequence[str], transactional_id: str | None
) -> list[CheckResult]:
    from streamgroups.doctor.check_results import State, worst
    from streamgroups.doctor.cluster_checks import judge_cluster
    from streamgroups_kafka.client.config import ClientConfig
    from streamgroups_kafka.client.connected import connected_settings
    from streamgroups_kafka.client.properties_file import as_in_a_file
    from streamgroups_kafka.probes.access_probe import probe_access
    from streamgroups_kafka.probes.cluster_probe import probe_cluster
    from streamgroups_kafka.transactions.probe import probe_transaction

    connected = connected_settings(connection, {})
    try:
        config = ClientConfig.from_options(connected.values)
    except InvalidOption as e:
        raise as_in_a_file(e) from None
    found = judge_cluster(probe_cluster(config))
    if worst(found) is State.PROBLEM:
        return found
    found += probe_access(config, topics, groups)
    return found if transactional_id is None else [*found, probe_transaction(config, transactional_id)]


def _registry(connection: SchemaRegistryConnection, subjects: Sequence[str]) -> list[CheckResult]:
    from streamgroups.decoding.registry import SchemaRegistry
    from streamgroups_kafka.schema_registry.client import RegistryClient
    from streamgroups_kafka.schema_registry.probe import judge_subjects

    with RegistryClient(SchemaRegistry(connection=connection)) as client:
        return judge_subjects(connection.url, client.subjects(), subjects)
