"""The metadata of committed offsets: the marks of members, of the Kafka sink, and of tools.

Written by ``streamgroups_kafka.membership.consumer_thread`` and ``streamgroups_spark.sinks.kafka``, and by tools
(:mod:`streamgroups.coordination.tool_commits`). Read when partitions are assigned. A mark shows who has set the position: a member, or a tool. It
identifies an exclusive member, names the topic and the state of the position, and the last reset that it contains. Source:
Kafka's OffsetCommit; SEMANTICS F1, F2, S5, S10, S11, X2.

A mark is ``streamgroups:<shared|exclusive|tool>[;written];cluster=<id>;topic=<id>;`` and fields of the form ``name=value;``:
``state``, ``epoch``, ``reset``, ``leader``, ``form``, ``from``, ``kept`` and
``restored``. An unknown id is empty. ``end;`` ends the mark: a consumer of confluent-kafka can return the text with bytes after it,
which can be those of another mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.state import origins
from streamgroups.state.origins import UNNAMED, StateOrigin
from streamgroups.state.state_lookup import Position

_FORM = re.compile(
    r"streamgroups:(?P<writer>shared|exclusive|tool)(?P<written>;written)?"
    r";cluster=(?P<cluster>[A-Za-z0-9%._~-]{0,1000});topic=(?P<topic>[A-Za-z0-9%._~-]{0,1000});"
    r"(?:state=(?P<state>[a-z0-9@.-]{1,200});)?"
    r"(?:epoch=(?P<epoch>[0-9]{1,18});)?"
    r"(?:reset=(?P<reset>[0-9a-f.]{1,40});)?"
    r"(?:leader=(?P<leader>[0-9]{1,10});)?"
    r"(?:form=(?P<form>[A-Za-z0-9%._~-]{1,1000});)?"
    r"(?:from=(?P<from>[0-9]{1,18});)?"
    r"(?:kept=(?P<kept>none|[0-9a-f.]{1,40});)?"
    r"(?:restored=(?P<restored>yes);)?end;",
    re.ASCII,
)
_NO_RESET = "none"
#: Kafka's ids have 22 characters. A broker limits metadata to 4,096 bytes, so a longer id is left out.
_MAX_LENGTH = 1_000


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The metadata of an offset that a member or a sink has committed.

    Args:
        exclusive: whether its member is an exclusive one.
        written: whether a sink committed it, together with the output of the records before it.
        identity: the topic of the offset.
        state: the state of the offset.
        epoch: the ownership epoch of the member. 0 if it is unknown.
        reset: the last reset that the offset contains.
        leader_epoch: a leader epoch of the partition whose log contained all records before the offset (KIP-320). ``None`` if it
            is unknown.
        form: the form of the program of the member. Empty if it is unknown.
        from_offset: where the member began to read: since then it has read the records up to the offset without interruption.
            ``None`` if it is unknown.

    >>> mark = CommitMark(exclusive=False, written=True, identity=TopicIdentity("c1", "t1"), epoch=7)
    >>> mark.encode()
    'streamgroups:shared;written;cluster=c1;topic=t1;epoch=7;end;'
    >>> CommitMark.parse(mark.encode() + "leader=4;end;") == mark, CommitMark.parse(mark.encode()[:-4])
    (True, None)
    """

    exclusive: bool
    written: bool = False
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin = UNNAMED
    epoch: int = 0
    reset: AppliedReset = NO_RESET
    leader_epoch: int | None = None
    form: str = ""
    from_offset: int | None = None

    def encode(self) -> str:
        """The mark as metadata."""
        mode, written = "exclusive" if self.exclusive else "shared", ";written" if self.written else ""
        fields = {
            "epoch": str(self.epoch or ""),
            "reset": self.reset.encode(),
            "leader": "" if self.leader_epoch is None else str(self.leader_epoch),
            "form": _quoted(self.form),
            "from": "" if self.from_offset is None else str(self.from_offset),
        }
        return _encoded(f"{mode}{written}", self.identity, self.state, fields)

    @classmethod
    def parse(cls, metadata: str) -> CommitMark | None:
        """Parses metadata; ``None`` if a tool or another client wrote it.

        >>> CommitMark.parse("by hand") is None
        True
        """
        found = _FORM.match(metadata)
        if found is None or found["writer"] == "tool":
            return None
        return cls(
            found["writer"] == "exclusive",
            found["written"] is not None,
            _identity(found),
            origins.decode(found["state"] or ""),
            int(found["epoch"] or 0),
            AppliedReset.parse(found["reset"] or ""),
            int(found["leader"]) if found["leader"] else None,
            unquote(found["form"] or ""),
            int(found["from"]) if found["from"] else None,
        )


@dataclass(frozen=True, slots=True)
class ToolMark:
    """The metadata of an offset that a tool has committed: a reset, an import, a copy or an undo.

    A member also writes it for the offset of a client without marks, before the ledger of a sink continues there.

    Args:
        reset: identifies the change. A position that contains it was read from there.
        identity: the topic of the offset.
        state: the state of the offset.
        form: the form of the program of the group: that of the offset that it replaces. Empty if it is unknown.
        kept_reset: if the change has replaced the state only: the last reset that the offset contained before. ``None`` if the
            change has set the offset too.
        is_restored: whether a restore of a savepoint has set the offset. Ledger and checkpoint follow it under each ``onRestart``.

    >>> mark = ToolMark(AppliedReset(1732334879123, "5f2c"))
    >>> mark.encode()
    'streamgroups:tool;cluster=;topic=;reset=1732334879123.5f2c;end;'
    >>> ToolMark.parse(mark.encode()) == mark, CommitMark.parse(mark.encode()) is None
    (True, True)
    """

    reset: AppliedReset
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin = UNNAMED
    form: str = ""
    kept_reset: AppliedReset | None = None
    is_restored: bool = False

    def encode(self) -> str:
        """The mark as metadata."""
        fields = {
            "reset": self.reset.encode(),
            "form": _quoted(self.form),
            "kept": "" if self.kept_reset is None else self.kept_reset.encode() or _NO_RESET,
            "restored": "yes" if self.is_restored else "",
        }
        return _encoded("tool", self.identity, self.state, fields)

    @classmethod
    def parse(cls, metadata: str) -> ToolMark | None:
        """Parses metadata; ``None`` if a member or another client wrote it."""
        found = _FORM.match(metadata)
        if found is None or found["writer"] != "tool":
            return None
        return cls(
            AppliedReset.parse(found["reset"] or ""),
            _identity(found),
            origins.decode(found["state"] or ""),
            unquote(found["form"] or ""),
            AppliedReset.parse(found["kept"]) if found["kept"] else None,
            found["restored"] is not None,
        )


def mark_of(metadata: str) -> CommitMark | ToolMark | None:
    """The mark in the metadata of a committed offset; ``None`` if another client wrote it."""
    return CommitMark.parse(metadata) or ToolMark.parse(metadata)


def position_of(topic_partition: TopicPartition, next_offset: int, metadata: str) -> Position:
    """The position of a committed offset, for the lookup of its state.

    >>> position_of(TopicPartition("flights", 0), 5, "by hand").origin
    Unnamed()
    """
    mark = mark_of(metadata)
    if mark is None:
        return Position(topic_partition, next_offset, UNNAMED)
    return Position(topic_partition, next_offset, mark.state, mark.identity)


def names_state(metadata: str) -> bool:
    """Whether metadata can name a state. Quicker than to parse it, for the many partitions of a cluster.

    >>> names_state("by hand"), names_state("streamgroups:shared;cluster=;topic=;state=empty;end;")
    (False, True)
    """
    return ";state=" in metadata


def is_held_exclusively(metadata: Iterable[str]) -> bool:
    """Whether an exclusive member made one of the commits with this metadata."""
    return any(mark is not None and mark.exclusive for mark in map(CommitMark.parse, metadata))


def _encoded(writer: str, identity: TopicIdentity, state: StateOrigin, fields: dict[str, str]) -> str:
    ids = f"cluster={_quoted(identity.cluster_id or '')};topic={_quoted(identity.topic_id or '')};"
    named = {"state": origins.encode(state), **fields}
    values = "".join(f"{name}={value};" for name, value in named.items() if value)
    return f"streamgroups:{writer};{ids}{values}end;"


def _identity(found: re.Match[str]) -> TopicIdentity:
    return TopicIdentity(unquote(found["cluster"]) or None, unquote(found["topic"]) or None)


def _quoted(text: str) -> str:
    quoted = quote(text, safe="")
    return quoted if len(quoted) <= _MAX_LENGTH else ""
