"""Each feature works with exactly the ACLs of ``docs/security.rst``. Without one of them, the error names it and the command
that grants it.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.secured_brokers import LOGIN, Listeners
from integration_tests.test_dead_letters_are_redriven import letters
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.tiers import LONG
from streamgroups.dlq.record_headers import to_headers
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.waits import wait_until

ANN = "User:ann"
_NUMBERS = itertools.count()
_KINDS = {
    "Topic": (ResourceType.TOPIC, "--topic"),
    "Group": (ResourceType.GROUP, "--group"),
    "TransactionalId": (ResourceType.TRANSACTIONAL_ID, "--transactional-id"),
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Acl:
    """An operation that ann may perform.

    Args:
        reported: the operation in the error without this ACL, if it is a larger one: Read includes Describe.
        is_optional: whether the feature works without it, with less.
        is_unnamed: whether the error cannot name the resource, because the broker omits it.
    """

    operation: str
    kind: str
    name: str
    reported: str | None = None
    is_prefix: bool = False
    is_optional: bool = False
    is_unnamed: bool = False

    @property
    def binding(self) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        operation, allow = _OPERATIONS[self.operation], AclPermissionType.ALLOW
        return AclBinding(_KINDS[self.kind][0], self.name, pattern, ANN, "*", operation, allow)

    @property
    def remedies(self) -> tuple[str, str]:
        operation = self.reported or self.operation
        if self.is_unnamed:
            return f"Grant {operation} on the {self.kind}: kafka-acls.sh", f"{_KINDS[self.kind][1]} NAME"
        command = f"--operation {operation} {_KINDS[self.kind][1]} {self.name}"
        if self.is_prefix:
            # The error has the whole name of a transactional id, or this prefix.
            return f"{self.kind} '{self.name}", command
        return f"Grant {operation} on {self.kind} '{self.name}': kafka-acls.sh", command


@dataclass(frozen=True)
class Place:
    """The names of one test, and the clients."""

    listeners: Listeners
    spark: Callable[[], SparkSession]
    directory: Path
    name: str

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.listeners.plain})

    def group(self) -> None:
        """A group with offsets."""
        self.command("groups", "reset", self.name, "--topic", "flights", "--to-offset", "1", "--execute", login=False)

    def topic(self, name: str) -> None:
        admin = self.admin
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    def new_topic(self) -> None:
        """The topic of this test, if it does not exist."""
        with suppress(KafkaException):
            self.topic(self.name)

    def no_topic(self, suffix: str = "") -> None:
        """Deletes the topic of a previous use."""
        admin, name = self.admin, f"{self.name}{suffix}"
        for deleted in admin.delete_topics([name]).values():
            with suppress(KafkaException):
                deleted.result(30)
        wait_until(lambda: name not in admin.list_topics(timeout=30).topics, "the topic is deleted")

    def command(self, *arguments: str, login: bool = True) -> None:
        """Runs a command, as ann or as the super user.

        Raises:
            AssertionError: with its messages, if it fails.
        """
        file = self.directory / "ann.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in LOGIN.items()))
        server = self.listeners.login if login else self.listeners.plain
        to = ["-b", server, "--timeout", "5s", *(["--command-config", str(file)] if login else [])]
        result = streamgroups(*arguments, *to)
        assert result.returncode == 0, result.stderr

    def stream(self, protocol: str = "classic") -> None:
        source = self.source(protocol)
        flights = self.spark().readStream.format("streamgroups").options(**source).load()
        run(flights.writeStream.format("noop").option("checkpointLocation", self.new_directory()))

    def source(self, protocol: str = "classic") -> dict[str, str]:
        login = {f"kafka.{name}": value for name, value in LOGIN.items()}
        return shared_options(self.listeners.login, self.name, "flights", protocol) | login

    def sink(self, topic: str) -> sg.KafkaSink:
        return sg.KafkaSink(
            bootstrap_servers=self.listeners.login, topic=topic, transactional_id=self.name, settings=LOGIN
        )

    def new_directory(self) -> str:
        return str(self.directory / uuid.uuid4().hex)


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Args:
        acls: from the unique name of a test.
        use: uses the feature as ann.
        prepare: runs before each use, as the super user.
    """

    acls: Callable[[str], tuple[Acl, ...]]
    use: Callable[[Place], None]
    prepare: Callable[[Place], None] = lambda _: None


def _read(name: str) -> tuple[Acl, ...]:
    return Acl("Read", "Topic", "flights"), Acl("Read", "Group", name)


def _batch(place: Place) -> None:
    source = {name: value for name, value in place.source().items() if name.startswith("kafka.")}
    del source["kafka.session.timeout.ms"], source["kafka.group.protocol"]
    assert place.spark().read.format("streamgroups").options(**source, subscribe="flights").load().count() > 0


def _exactly_once(place: Place) -> None:
    flights = place.spark().readStream.format("streamgroups").options(**place.source()).load().select("value")
    produce(place.listeners.plain, "flights", 2, partitions=1)
    run(sg.exactly_once(flights, sink=place.sink("board"), checkpoint=place.new_directory()))


def _another_letter(place: Place) -> None:
    """Another dead letter. The first call creates the topics."""
    target, producer = (
        f"{place.name}-target",
        ordered_producer(place.listeners.plain),
    )
    if place.name not in place.admin.list_topics(timeout=30).topics:
        place.topic(target)
        place.topic(place.name)
    letter = letters(target, 100)[next(_NUMBERS)]
    producer.produce(place.name, key=letter.key, value=letter.value, headers=list(to_headers(letter)), partition=0)
    producer.flush(30)


def _redrive(name: str) -> tuple[Acl, ...]:
    return (
        Acl("Read", "Topic", name),
        Acl("Write", "Topic", f"{name}-target"),
        Acl("Write", "TransactionalId", f"streamgroups.redrive-{name}"),
    )


def _a_letter_and_the_ids(place: Place) -> None:
    """Another dead letter, and the id of a redriven one."""
    _another_letter(place)
    admin, ids = place.admin, f"{place.name}.redriven"
    if ids not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(ids, 1, 1, config={"cleanup.policy": "compact"})])[ids].result(30)
        produce(place.listeners.plain, ids, 1, partitions=1)


def _a_letter_without_the_ids(place: Place) -> None:
    _another_letter(place)
    place.no_topic(".redriven")


def _cursors(place: Place) -> None:
    with sg.cursors.GroupCursors(place.listeners.login, LOGIN) as cursors:
        cursor = cursors.create_group_cursor("flights", place.name, "worker-1", sg.cursors.TRIM_HORIZON)
        messages, cursor = cursors.get_messages(cursor)
        assert messages
        cursors.consumer_commit(cursor)


def _describe_with_a_member(place: Place) -> None:
    """The metadata group of this group cannot be described, and does not exist."""
    consumer = Consumer(
        {"bootstrap.servers": place.listeners.plain, "group.id": place.name, "enable.auto.commit": False}
    )
    consumer.subscribe(["flights"])

    def is_member() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        wait_until(is_member, "the consumer is a member")
        place.command("groups", "describe", place.name, "--no-time-lag", "--count-limit", "0")
    finally:
        consumer.close()


def _repartition(place: Place) -> None:
    flights = place.spark().readStream.format("streamgroups").options(**place.source()).load()
    produce(place.listeners.plain, "flights", 2, partitions=1)
    airports = flights.selectExpr("CAST(value AS STRING) AS airport")
    run(sg.repartition(airports, by=["airport"], topic=place.name, partitions=1, checkpoint=place.new_directory()))


def _delete(place: Place) -> None:
    undo_file = Path(place.new_directory())
    place.command("groups", "delete", place.name, "--execute", "--undo-file", str(undo_file))
    (group,) = json.loads(undo_file.read_text())["groups"]
    assert [(it["topic"], it["partition"], it["offset"]) for it in group["partitions"]] == [("flights", 0, 1)]


def _lines(place: Place) -> str:
    file = place.directory / "lines"
    file.write_text("UA1545\n")
    return str(file)


FEATURES = {
    "stream, classic": Feature(_read, Place.stream),
    "stream, consumer": Feature(_read, lambda place: place.stream("consumer")),
    "batch": Feature(lambda _: (Acl("Read", "Topic", "flights"),), _batch),
    "Kafka sink": Feature(
        lambda name: (*_read(name), Acl("Write", "Topic", "board"), Acl("Write", "TransactionalId", name)),
        _exactly_once,
    ),
    "groups describe": Feature(
        lambda name: (Acl("Describe", "Group", name, "Read"), Acl("Describe", "Topic", "flights", is_optional=True)),
        lambda place: place.command("groups", "describe", place.name, "--no-time-lag", "--count-limit", "0"),
        Place.group,
    ),
    "groups describe, with a member of another program": Feature(
        lambda name: (Acl("Describe", "Group", name, "Read"), Acl("Describe", "Topic", "flights", is_optional=True)),
        _describe_with_a_member,
        Place.group,
    ),
    "groups reset": Feature(
        _read,
        lambda place: place.command(
            "groups",
            "reset",
            place.name,
            "--topic",
            "flights",
            "--to-latest",
            "--execute",
            "--undo-file",
            place.new_directory(),
        ),
        Place.group,
    ),
    "groups delete-offsets": Feature(
        lambda name: (Acl("Read", "Topic", "flights"), Acl("Delete", "Group", name, "Read")),
        lambda place: place.command(
            "groups",
            "delete-offsets",
            place.name,
            "--topic",
            "flights",
            "--execute",
            "--undo-file",
            place.new_directory(),
        ),
        Place.group,
    ),
    "groups delete": Feature(
        lambda name: (
            Acl("Delete", "Group", name, "Read"),
            Acl("Delete", "Group", f"{name}.streamgroups", is_prefix=True, is_optional=True),
            Acl("Describe", "Topic", "flights", is_unnamed=True),
        ),
        _delete,
        Place.group,
    ),
    "dlq list": Feature(
        lambda name: (Acl("Read", "Topic", name),),
        lambda place: place.command("dlq", "list", place.name),
        _another_letter,
    ),
    "dlq purge": Feature(
        lambda name: (Acl("Read", "Topic", name), Acl("Delete", "Topic", name)),
        lambda place: place.command("dlq", "purge", place.name, "--include-waiting", "--execute"),
        _another_letter,
    ),
    "dlq redrive": Feature(
        lambda name: (
            *_redrive(name),
            Acl("Write", "Topic", f"{name}.redriven"),
            Acl("Read", "Topic", f"{name}.redriven"),
            Acl("DescribeConfigs", "Topic", f"{name}.redriven"),
        ),
        lambda place: place.command("dlq", "redrive", place.name, "--source", f"{place.name}-target", "--execute"),
        _a_letter_and_the_ids,
    ),
    "dlq redrive, without a topic of ids": Feature(
        lambda name: (
            *_redrive(name),
            Acl("Create", "Topic", f"{name}.redriven"),
            # The first request after the creation describes the topic.
            Acl("Write", "Topic", f"{name}.redriven", "Read"),
        ),
        lambda place: place.command("dlq", "redrive", place.name, "--source", f"{place.name}-target", "--execute"),
        _a_letter_without_the_ids,
    ),
    "GroupCursors": Feature(
        lambda name: (*_read(name), Acl("Read", "Group", f"{name}.streamgroups", is_prefix=True)), _cursors
    ),
    "repartition": Feature(
        lambda name: (
            *_read(name),
            Acl("Write", "Topic", name),
            Acl("Write", "TransactionalId", f"streamgroups-{name}", is_prefix=True),
        ),
        _repartition,
        Place.new_topic,
    ),
    "topics create": Feature(
        lambda name: (Acl("Create", "Topic", name), Acl("Describe", "Topic", name)),
        lambda place: place.command("topics", "create", place.name, "--partitions", "1"),
        Place.no_topic,
    ),
    "topics produce": Feature(
        lambda name: (Acl("Write", "Topic", "board"),),
        lambda place: place.command("topics", "produce", "board", _lines(place)),
    ),
    "topics tail": Feature(
        lambda name: (Acl("Read", "Topic", "flights"),),
        lambda place: place.command("topics", "tail", "flights"),
    ),
}
#: Each missing ACL is a query or a sink that fails, and the tests of the sinks have all ACLs. librdkafka retries a rejected request of
#: cursors for 30 s.
_SLOW = {
    "stream, classic",
    "stream, consumer",
    "Kafka sink",
    "dlq redrive, without a topic of ids",
    "GroupCursors",
    "repartition",
}


@pytest.fixture(scope="module")
def listeners(secured: Listeners) -> Listeners:
    """A broker with the topics of the features."""
    admin = AdminClient({"bootstrap.servers": secured.plain})
    for made in admin.create_topics([NewTopic(it, 1, 1) for it in ("flights", "board", "letters")]).values():
        made.result(30)
    produce(secured.plain, "flights", 4, partitions=1)
    return secured


@pytest.fixture
def place(listeners: Listeners, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(listeners, lambda: request.getfixturevalue("spark"), tmp_path, f"ann-{uuid.uuid4().hex[:8]}")
    yield made
    permit(made.admin)


def permit(admin: AdminClient, *acls: Acl) -> None:
    """Ann may do this, and nothing else."""
    every = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        ANN,
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for deleted in admin.delete_acls([every]).values():
        deleted.result(30)
    required = {acl.binding for acl in acls}
    if required:
        for created in admin.create_acls(list(required)).values():
            created.result(30)
    wait_until(lambda: set(admin.describe_acls(every).result(30)) == required, "the ACLs apply")


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG) if name in _SLOW else name for name in FEATURES])
def test_a_feature_needs_exactly_these_acls(place: Place, name: str) -> None:
    feature = FEATURES[name]
    acls = feature.acls(place.name)
    for missing in acls:
        if missing.is_optional:
            continue
        feature.prepare(place)
        permit(place.admin, *(acl for acl in acls if acl is not missing))
        with pytest.raises(Exception) as raised:  # noqa: PT011
            feature.use(place)
        for remedy in missing.remedies:
            assert remedy in str(raised.value)
    feature.prepare(place)
    permit(place.admin, *acls)
    feature.use(place)
