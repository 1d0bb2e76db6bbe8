"""``streamgroups topics create``: creates topics.

``streamgroups_cli.topics`` imports it. A topic that a broker creates by itself has one partition mostly, and the number
of partitions limits the number of members of a group. Source: ``kafka-topics.sh --create``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from streamgroups.errors import GroupRejected, PartlyDone, StreamGroupsError
from streamgroups.json_values import MAX_INT32
from streamgroups.partitions import TopicDescription
from streamgroups.shell_quoting import names as names_of
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.options import name_values, with_options
from streamgroups_cli.output import Output, OutputOption, emit_rows

#: Kafka sends the number as int16.
_MAX_REPLICAS = 2**15 - 1
_COLUMNS = (Column("topic"), Column("partitions", right=True), Column("replicas", right=True), Column("result"))


@with_options
def create(
    connect: Connect,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="New topics.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=MAX_INT32,
            metavar="N",
            help="Number of partitions. Default: that of the brokers.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            max=_MAX_REPLICAS,
            metavar="N",
            help="Number of replicas of each partition. Default: that of the brokers.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A setting of the topics, as in retention.ms; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option("--if-not-exists", help="Accept an existing topic with this number of partitions and replicas."),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Create topics. An existing topic is an error, and stays as it is.

    Exit code: 0 if all exist, 1 if none was created, 3 if a topic exists already, 4 if some were created and some were not.
    """
    names = list(dict.fromkeys(topics))
    settings = dict(name_values("--config", config, example="retention.ms=3600000"))
    with connect() as cluster:
        existing = cluster.topics.describe_topics(names)
        requested = _Requested(partitions, replication_factor, settings, if_not_exists)
        for name in existing:
            if rejection := requested.rejection(name, existing.get(name)):
                raise rejection.with_text(f"{rejection.what} Nothing was changed.", rejection.remedy)
        created, failures = _create(
            [name for name in names if name not in existing],
            lambda name: cluster.topics.create_topic(name, partitions, replication_factor, settings),
        )
        failures |= _raced(cluster, [it for it in names if it not in {*existing, *created, *failures}], requested)
        if failures and not created:
            raise next(iter(failures.values()))
        rows = _rows(cluster, names, created, failures)
    emit_rows(output, "topics", Table(_COLUMNS, rows))
    if failures:
        raise _partly(created, failures)


def _create(
    topics: Sequence[str], create_topic: Callable[[str], bool]
) -> tuple[list[str], dict[str, StreamGroupsError]]:
    """Creates topics. Returns the created ones, and the errors of others. After an error of the connection it creates no more."""
    created: list[str] = []
    failures: dict[str, StreamGroupsError] = {}
    for i, name in enumerate(topics):
        try:
            if create_topic(name):
                created.append(name)
        except StreamGroupsError as e:
            failures[name] = e
            if e.retriable:
                failures |= dict.fromkeys(topics[i:], e)
                break
    return created, failures


def _partly(created: Sequence[str], failures: Mapping[str, StreamGroupsError]) -> PartlyDone:
    whats = dict.fromkeys(it.what for it in failures.values())
    remedies = dict.fromkeys(it.remedy for it in failures.values() if it.remedy)
    return PartlyDone(
        f"Created: {', '.join(map(repr, created))}. Not created: {', '.join(map(repr, failures))}. {' '.join(whats)}",
        remedy=f"{' '.join(remedies)} Then repeat the command for: {names_of(failures)}.".strip(),
    )


@dataclass(frozen=True, slots=True)
class _Requested:
    """The options of the command.

    Args:
        partitions: the number of partitions; ``None`` for that of the brokers.
        replication_factor: the number of replicas; ``None`` for that of the brokers.
        settings: the settings of the topics.
        accepts_existing: whether a topic with these numbers may exist.
    """

    partitions: int | None
    replication_factor: int | None
    settings: Mapping[str, str]
    accepts_existing: bool

    def rejection(self, name: str, topic: TopicDescription | None) -> GroupRejected | None:
        """Returns why an existing topic is rejected; ``None`` if it is accepted.

        Args:
            name: its name.
            topic: its description; ``None`` if the brokers do not list it yet.
        """
        if topic is None:
            return GroupRejected(f"Topic '{name}' exists already.", remedy="Repeat the command.", topic=name)
        count, replicas = len(topic.partitions), _replicas(topic)
        has = f"Topic '{name}' exists already, with {_counted(count, 'partition')} and {_counted(replicas, 'replica')}"
        if not self.accepts_existing:
            remedy = "Use another name, or accept it with --if-not-exists."
            return GroupRejected(f"{has}.", remedy=remedy, topic=name)
        if self.partitions not in (None, count) or self.replication_factor not in (None, replicas):
            remedy = "Use its numbers, or another name. kafka-topics.sh --alter adds partitions."
            return GroupRejected(f"{has}, which differ from the options.", remedy=remedy, topic=name)
        if self.settings:
            remedy = "Omit --config, or use another name. kafka-configs.sh changes settings of a topic."
            return GroupRejected(f"{has}. Its settings are not compared with --config.", remedy=remedy, topic=name)
        return None


def _raced(cluster: Cluster, names: Sequence[str], requested: _Requested) -> dict[str, StreamGroupsError]:
    """Checks the topics that another operator has created since the first check. Returns the rejected ones."""
    if not names:
        return {}
    try:
        described = cluster.topics.describe_topics(names)
    except StreamGroupsError as e:
        return dict.fromkeys(names, e)
    found = {name: requested.rejection(name, described.get(name)) for name in names}
    return {name: it for name, it in found.items() if it is not None}


def _rows(
    cluster: Cluster, names: Sequence[str], created: Collection[str], failures: Collection[str]
) -> list[list[Cell]]:
    try:
        described = cluster.topics.describe_topics(names)
    except StreamGroupsError:
        if not created:
            raise
        # They are created, so the command is not repeated.
        described = {}
    return [
        [
            name,
            len(described[name].partitions) if name in described else None,
            _replicas(described[name]) if name in described else None,
            "created" if name in created else "failed" if name in failures else "exists",
        ]
        for name in names
    ]


def _replicas(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
