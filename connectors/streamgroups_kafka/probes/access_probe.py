"""Probes what the user of a Kafka connection may do with topics, groups and the cluster.

Called by ``streamgroups connections test``. A broker returns the permitted operations of a resource with its description, so
nothing is changed. Source: KIP-430.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streamgroups.acls import Resource, grant
from streamgroups.doctor.check_results import CheckResult, ok, problem, warning
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.described_group import request_descriptions, response
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.properties_file import as_in_a_file

_TIMEOUT_S = 10.0
_CLIENT_ID = "streamgroups-connections"
#: The operations of a source and of a sink.
_TOPIC_OPERATIONS = ("Describe", "Read", "Write")
_GROUP_OPERATIONS = ("Describe", "Read")
#: The errors of a topic that does not exist, or that this user may not describe.
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)
#: Topics in one description.
_MAX_TOPICS = 1_000


def probe_access(config: ClientConfig, topics: Sequence[str], groups: Sequence[str]) -> list[CheckResult]:
    """Returns what this user may do, after a successful login.

    Args:
        config: the configuration of the client.
        topics: topics whose ACLs are required; empty for a summary of all visible topics.
        groups: groups whose ACLs are required.
    """
    admin = AdminClient(dict(config.for_admin(client_id=_CLIENT_ID)))
    found: list[CheckResult] = []
    probes: dict[str, Callable[[], list[CheckResult]]] = {
        # A request with duplicates is rejected.
        "topics": lambda: _topics(admin, list(dict.fromkeys(topics))),
        "groups": lambda: _groups(admin, list(dict.fromkeys(groups))),
        "acls": lambda: [_cluster(admin)],
    }
    for about, probe in probes.items():
        try:
            found.extend(probe())
        except KafkaException as e:
            error = as_in_a_file(to_streamgroups_error(e.args[0], "The request", redact=config.redact))
            found.append(problem(about, error.what, error.remedy))
    return found


def judge_operations(
    kind: Resource, name: str, granted: Collection[str] | None, required: Sequence[str]
) -> CheckResult:
    """Returns the result for one topic or group.

    Args:
        kind: the type of the resource.
        name: its name.
        granted: the operations that the broker permits; ``None`` if it did not return them.
        required: the operations of queries.

    >>> judge_operations("Topic", "flights", {"Read", "Describe"}, ["Read", "Write"]).what
    "Topic 'flights': Read is permitted, and Write is not."
    """
    about, subject = f"{kind.lower()}", f"{kind} '{name}'"
    if granted is None:
        return warning(
            about,
            f"{subject}: the broker returned no operations, also if it does not exist.",
            "Check its ACLs: kafka-acls.sh --list.",
        )
    permitted = [it for it in required if it in granted]
    missing = [it for it in required if it not in granted]
    if not missing:
        return ok(about, f"{subject}: {_listed(permitted)} permitted.")
    first = f"{_listed(permitted)} permitted, and " if permitted else ""
    what = f"{subject}: {first}{_listed(missing)} not{'' if permitted else ' permitted'}."
    remedies = " ".join(grant(operation, kind, [name]) for operation in missing)
    # A query reads or writes a topic, and few do both.
    is_enough = bool(permitted) and kind == "Topic" and set(missing) <= {"Read", "Write"} and len(missing) == 1
    return (warning if is_enough else problem)(about, what, remedies)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _topics(admin: AdminClient, names: list[str]) -> list[CheckResult]:
    visible = sorted(admin.list_topics(timeout=_TIMEOUT_S).topics)
    described = names or [name for name in visible if not name.startswith("__")][:_MAX_TOPICS]
    granted: dict[str, frozenset[str] | None] = {}
    missing: list[str] = []
    if described:
        futures = admin.describe_topics(
            TopicCollection(described), include_authorized_operations=True, request_timeout=_TIMEOUT_S
        )
        for name, future in futures.items():
            try:
                granted[name] = _operations(future.result())
            except KafkaException as e:
                if e.args[0].code() not in _NO_TOPIC:
                    raise
                missing.append(name)
    if names:
        found = [judge_operations("Topic", name, granted[name], _TOPIC_OPERATIONS) for name in names if name in granted]
        remedy = "Create it, or correct its name. If it exists: {}"
        return found + [
            problem(
                "topic",
                f"Topic '{name}' does not exist, or this user may not describe it.",
                remedy.format(grant("Describe", "Topic", [name])),
            )
            for name in missing
        ]
    counts = {it: sum(it in (of or ()) for of in granted.values()) for it in ("Read", "Write")}
    what = f"{counts['Read']} can be read and {counts['Write']} can be written. --topic shows the ACLs of one."
    return [ok("topics", what, f"{len(described)} topics")]


def _groups(admin: AdminClient, names: list[str]) -> list[CheckResult]:
    if not names:
        listed = admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
        for error in listed.errors:
            # A broker has not returned its groups (SEMANTICS G17).
            raise error if isinstance(error, KafkaException) else KafkaException(error)
        return [
            ok("groups", "This user may describe them. --group shows the ACLs of one.", f"{len(listed.valid)} groups")
        ]
    futures = request_descriptions(admin, names, with_operations=True)
    found = []
    for name, future in futures.items():
        try:
            granted = _operations(response(future, _TIMEOUT_S))
        except KafkaException as e:
            code = e.args[0].code()
            if code not in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.GROUP_ID_NOT_FOUND):
                raise
            # A group that does not exist has no description.
            granted = frozenset() if code == KafkaError.GROUP_AUTHORIZATION_FAILED else None
        found.append(judge_operations("Group", name, granted, _GROUP_OPERATIONS))
    return found


def _cluster(admin: AdminClient) -> CheckResult:
    described = admin.describe_cluster(include_authorized_operations=True, request_timeout=_TIMEOUT_S).result()
    granted = _operations(described)
    if not granted:
        return ok("acls", "No operation on the cluster is permitted. Queries need none.")
    return ok("acls", f"Operations on the cluster: {', '.join(sorted(granted))}.")


def _operations(described: Any) -> frozenset[str] | None:
    operations = described.authorized_operations
    if operations is None:
        return None
    return frozenset("".join(word.title() for word in it.name.split("_")) for it in operations)
