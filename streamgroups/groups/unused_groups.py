"""Decides which groups are unused: no members, and no commit for longer than a given time.

``streamgroups_cli.groups.delete_unused`` calls it, with the times of the records in ``__consumer_offsets``. Source: SEMANTICS
G14, G15; Kafka's ``GroupMetadataManager.partitionFor`` and ``OffsetCommitKey``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroups.durations import duration
from streamgroups.groups.description import INACTIVE_STATES, TYPES_WITH_OFFSETS
from streamgroups.printable import listed

#: The topic in which Kafka stores committed offsets.
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class GroupUse:
    """What is known about the use of a group.

    Args:
        state: its state, as the broker reports it.
        type: its type; empty if the broker does not report it.
        protocol_type: the protocol type of its members; empty if it never had members.
        last_used_ms: the time of its last commit or change of members, in milliseconds since the epoch; ``None`` if
            unknown.
        missing_owner: for a metadata group whose group does not exist: that group.
    """

    state: str
    type: str = ""
    protocol_type: str = ""
    last_used_ms: int | None = None
    missing_owner: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a group is unused, and why.

    Args:
        is_unused: whether it can be deleted.
        reason: a few words for operators.
        depends_on_clock: whether only the clock of this machine makes it unused.
    """

    is_unused: bool
    reason: str
    depends_on_clock: bool = False


def judge(use: GroupUse, older_than_ms: int, now_ms: int, newest_ms: int | None = None) -> Verdict:
    """Returns whether a group is unused. Whatever is unknown counts as use.

    Kafka has no request for the time of a broker. The newest record of :data:`OFFSETS_TOPIC` is a lower limit of it, and
    the clock of an operator can be ahead.

    Args:
        use: what is known about the group.
        older_than_ms: the time without use after which a group is unused.
        now_ms: milliseconds since the epoch, by the clock of this machine.
        newest_ms: the time of the newest record, which a broker has written; ``None`` to trust the clock.

    >>> judge(GroupUse("Empty", last_used_ms=0), 86_400_000, now_ms=172_800_000)
    Verdict(is_unused=True, reason='last used 2d ago', depends_on_clock=False)
    >>> judge(GroupUse("Stable", last_used_ms=0), 86_400_000, now_ms=172_800_000)
    Verdict(is_unused=False, reason='it is Stable', depends_on_clock=False)
    >>> judge(GroupUse("Empty"), 86_400_000, now_ms=172_800_000)
    Verdict(is_unused=False, reason='the time of its last use is unknown', depends_on_clock=False)
    >>> judge(GroupUse("Empty", last_used_ms=0), 86_400_000, now_ms=172_800_000, newest_ms=60_000).depends_on_clock
    True
    """
    if use.state not in INACTIVE_STATES:
        return Verdict(False, f"it is {use.state}" if use.state else "its state is unknown")
    if use.type not in TYPES_WITH_OFFSETS:
        return Verdict(False, f"it is a {use.type} group")
    if use.protocol_type not in ("", "consumer"):
        return Verdict(False, f"its members are of type {use.protocol_type}")
    if use.last_used_ms is None:
        return Verdict(False, "the time of its last use is unknown")
    age_ms = max(0, now_ms - use.last_used_ms)
    gone = "" if use.missing_owner is None else f"group '{use.missing_owner}' does not exist, "
    reason = f"{gone}last used {duration(age_ms)} ago"
    if age_ms > older_than_ms and newest_ms is not None and newest_ms - use.last_used_ms <= older_than_ms:
        return Verdict(False, f"{reason} by the clock of this machine only", depends_on_clock=True)
    return Verdict(age_ms > older_than_ms, reason)


def with_unknown_use(names: Mapping[str, Iterable[str]], unknown: Collection[int], partitions: int) -> set[str]:
    """Returns the groups whose last use is unknown, because a partition of ``__consumer_offsets`` with their records is.

    A list of groups omits the groups of such a partition. So a metadata group counts whether or not it is listed.

    Args:
        names: the name of each group, and of all its metadata groups.
        unknown: the partitions whose records are unknown, as those without a leader.
        partitions: the number of partitions.

    >>> names = {"board": ["board", "board.streamgroups"], "billing": ["billing"]}
    >>> [partition_of_group(name, 50) for name in ("board", "board.streamgroups", "billing")]
    [10, 4, 9]
    >>> with_unknown_use(names, {4, 5}, 50)
    {'board'}
    """
    return {group for group, of in names.items() if any(partition_of_group(it, partitions) in unknown for it in of)}


def reason_to_keep(group: str, owner: str, state: str, unlisted: Collection[str]) -> str | None:
    """Returns why a group remains that the list of groups has shown as unused. A list can be incomplete, and old.

    Args:
        group: the group.
        owner: for a metadata group: its group; else the group itself.
        state: the current state of the owner.
        unlisted: existing metadata groups of the owner that the list has omitted.

    >>> reason_to_keep("board", "board", "Stable", [])
    "group 'board' has members now"
    >>> reason_to_keep("board.streamgroups", "board", "Empty", [])
    "group 'board' exists"
    >>> reason_to_keep("board", "board", "Empty", ["board.streamgroups"])
    "the list of groups has omitted 'board.streamgroups'"
    >>> reason_to_keep("board", "board", "Empty", [])
    """
    if state not in INACTIVE_STATES:
        return f"group '{owner}' has members now"
    if owner != group and state != "Dead":
        return f"group '{owner}' exists"
    return f"the list of groups has omitted {listed(map(repr, unlisted))}" if unlisted else None


def group_in_key(key: bytes | None) -> str | None:
    """Returns the group that a record of ``__consumer_offsets`` is about; ``None`` for any other record.

    All keys begin with a version of two bytes and the name of the group, with its length in two bytes.

    >>> group_in_key(b"\\x00\\x01\\x00\\x05board\\x00\\x07flights\\x00\\x00\\x00\\x03")
    'board'
    >>> group_in_key(b"\\x00\\x01\\x00\\x09board"), group_in_key(None)
    (None, None)
    """
    if key is None or len(key) < 4:
        return None
    length = int.from_bytes(key[2:4], "big", signed=True)
    name = key[4 : 4 + length] if length >= 0 else b""
    try:
        return name.decode() if len(name) == length else None
    except UnicodeDecodeError:
        return None


def partition_of_group(group_id: str, partitions: int) -> int:
    """Returns the partition of ``__consumer_offsets`` that stores a group: by the absolute value of Java's hash code.

    The absolute value of the least hash code is 0 (``Utils.abs`` of Kafka).

    >>> partition_of_group("flight-board", 50), partition_of_group("", 50), partition_of_group("g-eb691b99", 50)
    (47, 0, 13)
    """
    code = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8) + low) & 0xFFFFFFFF
    absolute = code if code < 1 << 31 else (1 << 32) - code
    return absolute % (1 << 31) % partitions
