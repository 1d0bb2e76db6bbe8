"""Validates arguments, instance names and the number of groups before anything changes, and detects unused groups.

``streamgroups_kafka.cursors.group_cursors`` calls this module, and ``admin.group_limit`` for queries. Source: SEMANTICS G3, G4, G6, G14, G15.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroups.coordination.reset_protocol import MemberEntry, is_metadata_group, members_group_of
from streamgroups.cursors.cursor_tokens import LIFETIME_MS
from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.groups.commit_metadata import ToolMark
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.program import CURSORS, forms_in
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition

#: The maximum and default number of messages of one request.
MAX_MESSAGES = 10_000
#: How many groups read a topic by default (G14).
MAX_GROUPS_PER_TOPIC = 50
_MIN_TIMEOUT_MS = 1_000
_MAX_NAME = 249
#: The maximum length of an instance name as JSON. The metadata entry of an instance contains it twice, in its name and in its
#: member id. A broker allows 4,096 bytes by default.
_MAX_ENCODED_NAME = 6 * _MAX_NAME


def check_limit(limit: int | None) -> int:
    """Returns the maximum number of messages of a request.

    Raises:
        InvalidOption: if ``limit`` is not between 1 and 10,000.

    >>> check_limit(None)
    10000
    """
    if limit is None:
        return MAX_MESSAGES
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_MESSAGES:
        raise InvalidOption(
            f"The limit is {limit!r}. It must be between 1 and {MAX_MESSAGES:,} messages.",
            remedy="Set a number in that range, or omit it.",
        )
    return limit


def check_instance(group: str, instance: str, lease_timeout_ms: int) -> None:
    """Rejects invalid names and timeouts.

    Raises:
        InvalidOption: with the invalid argument.
    """
    check_group_name(group)
    _check_name("instance_name", instance)
    if (encoded := len(json.dumps(instance)) - 2) > _MAX_ENCODED_NAME:
        raise InvalidOption(
            f"instance_name has {len(instance)} characters, which are {encoded:,} bytes in the metadata entry of the instance. "
            f"At most {_MAX_ENCODED_NAME:,} are allowed.",
            remedy="Use a shorter name. A character such as an emoji is 12 bytes there, and an ASCII character is 1.",
        )
    is_number = isinstance(lease_timeout_ms, int) and not isinstance(lease_timeout_ms, bool)
    if not is_number or not _MIN_TIMEOUT_MS <= lease_timeout_ms <= LIFETIME_MS:
        raise InvalidOption(
            f"lease_timeout_ms is {lease_timeout_ms!r}. It must be between {_MIN_TIMEOUT_MS:,} and {LIFETIME_MS:,}.",
            remedy="If the instance processes messages for longer, call consumer_heartbeat meanwhile.",
        )


def check_group_name(group: str) -> None:
    """Rejects an invalid group name.

    Raises:
        InvalidOption: if it is empty, too long, or the name of a metadata group.
    """
    _check_name("group_name", group)
    if is_metadata_group(group):
        raise InvalidOption(
            f"'{group}' is a name that streamgroups reserves for its metadata groups.", remedy="Use another group name."
        )


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise InvalidOption(
            f"{what} is {name!r}, which is not a valid name.",
            remedy=f"Use 1 to {_MAX_NAME} printable characters.",
        )
    if name != name.strip():
        raise InvalidOption(
            f"{what} is {name!r}, which begins or ends with a space: it would be another name than {name.strip()!r}.",
            remedy="Remove the space.",
        )


def check_name_is_free(group: GroupDescription, instance: str, *, own: int = 0) -> None:
    """Rejects the name of a live member (G3).

    Args:
        group: the group now.
        instance: the name.
        own: how many members of that name belong to the caller: 1 once it has joined.

    Raises:
        GroupRejected: with the live member and its partitions.

    >>> from streamgroups.groups.description import GroupMember
    >>> alice = GroupMember("alice", "/10.0.0.2")
    >>> check_name_is_free(GroupDescription("billing", "Stable", members=(alice,)), "alice")
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Group 'billing' has a live member named 'alice': alice (/10.0.0.2), which owns \
nothing. Use another instance name. If that instance has failed, the group removes it after its session timeout.
    """
    same = [m for m in group.members if m.client_id == instance]
    if len(same) <= own:
        return
    held = ", ".join(map(str, sorted(same[0].partitions))) or "nothing"
    raise GroupRejected(
        f"Group '{group.group_id}' has a live member named '{instance}': {same[0]}, which owns {held}.",
        remedy="Use another instance name. If that instance has failed, the group removes it after its session timeout.",
        group=group.group_id,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """A group that reads a stream: it has committed offsets there.

    Args:
        group: its name.
        live: whether it has members.
        last_used_ms: when a member last stored its use, or a tool set its offsets later, milliseconds since the epoch; ``None``
            if no member has stored its use, or an entry cannot be read.
        elsewhere: whether it has committed offsets of other streams, too.
        of_cursors: whether instances of group cursors have committed its offsets. Spark queries store their use only while
            they run, and can continue after any time.
    """

    group: str
    live: bool
    last_used_ms: int | None = None
    elsewhere: bool = False
    of_cursors: bool = False


def readers_of(
    streams: Collection[str], live: Mapping[str, bool], metadata: Mapping[str, Mapping[TopicPartition, str]]
) -> dict[str, list[Reading]]:
    """Returns the groups that read each of these streams.

    Args:
        streams: the topics.
        live: all groups, and whether they have members.
        metadata: the metadata of all committed offsets of each group, metadata groups included.

    >>> p = TopicPartition("flights", 0)
    >>> readers_of(["flights"], {"a": True, "b": False}, {"a": {p: ""}, "b": {}})
    {'flights': [Reading(group='a', live=True, last_used_ms=None, elsewhere=False, of_cursors=False)]}
    """
    found: dict[str, list[Reading]] = {stream: [] for stream in sorted(streams)}
    for group, has_members in sorted(live.items()):
        topics = {tp.topic for tp in metadata.get(group, {})}
        read = topics & found.keys()
        if read and not is_metadata_group(group):
            metadata_store = members_group_of(group)
            entries = read_entries(
                metadata_store, metadata.get(metadata_store, {}), lambda _, text: MemberEntry.parse(text)
            )
            used_ms = max((entry.used_ms for entry in entries.values()), default=None)
            if len(entries) < sum(map(bool, metadata.get(metadata_store, {}).values())):
                # An entry that cannot be read can be of a later use.
                used_ms = None
            if used_ms is not None:
                used_ms = max(used_ms, _changed_ms(metadata[group].values()))
            forms = set(forms_in(metadata[group]).values()) - {""}
            reading = Reading(group, has_members, used_ms, elsewhere=len(topics) > 1, of_cursors=forms == {CURSORS})
            for stream in read:
                found[stream].append(reading)
    return found


def _changed_ms(metadata: Iterable[str]) -> int:
    """When a tool last set one of these offsets, milliseconds since the epoch; 0 if none did.

    The number of its reset is the time of the change, or a greater number.
    """
    return max((mark.reset.number for mark in map(ToolMark.parse, metadata) if mark is not None), default=0)


def check_group_count(topic: str, readers: Collection[Reading], most: int, *, setting: str) -> None:
    """Rejects a new group if a topic has reached its limit of groups (G14).

    ``streamgroups_kafka.admin.group_limit`` calls it for queries.

    Args:
        topic: the topic.
        readers: the groups that read it.
        most: the limit.
        setting: what sets the limit, for the error.

    Raises:
        GroupRejected: with the groups without members, the longest unused first, as candidates for deletion.

    >>> check_group_count("flights", [Reading("a", True), Reading("b", False)], 2, setting="'groups_per_stream'")
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Topic 'flights' is already read by 2 groups, which is the limit. Delete a group that is no \
longer needed (streamgroups groups sweep lists unused ones); groups without members: b. Or raise 'groups_per_stream'.
    """
    if len(readers) < most:
        return
    idle = sorted((r for r in readers if not r.live), key=lambda r: (r.last_used_ms or 0, r.group))
    candidates = f"groups without members: {', '.join(r.group for r in idle)}" if idle else "all of them have members"
    raise GroupRejected(
        f"Topic '{topic}' is already read by {len(readers)} groups, which is the limit.",
        remedy="Delete a group that is no longer needed (streamgroups groups sweep lists unused ones); "
        f"{candidates}. Or raise {setting}.",
        topic=topic,
    )


def has_vanished(reader: Reading, retention_ms: int | None, now_ms: int) -> bool:
    """Returns whether a group has been unused for as long as its stream retains messages (G15).

    Args:
        reader: the group.
        retention_ms: the retention of the stream; ``None`` if it is unlimited.
        now_ms: milliseconds since the epoch.

    Returns:
        ``False`` for a group with members, for one that reads other streams, for one whose last use was not stored, and
        for one of Spark queries or other clients. Kafka removes those itself after ``offsets.retention.minutes``.

    >>> has_vanished(Reading("billing", False, last_used_ms=0, of_cursors=True), 1_000, now_ms=1_001)
    True
    """
    if reader.live or reader.elsewhere or not reader.of_cursors:
        return False
    if reader.last_used_ms is None or retention_ms is None:
        return False
    return now_ms - reader.last_used_ms > retention_ms
