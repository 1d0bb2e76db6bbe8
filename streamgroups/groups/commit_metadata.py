"""The metadata that members and the Kafka sink write beside the offsets that they commit.

Written by ``streamgroups_kafka.membership.consumer_thread`` and ``streamgroups_spark.sinks.kafka``, and read when
partitions are assigned. It identifies an exclusive member to other members. It shows a restarted query whether a member
or a tool made a commit. It contains the ids of the topic and the cluster of the position, and names the state of the
position. Source: Kafka's OffsetCommit; SEMANTICS S5, S10, S11, X2.

The format is ``streamgroups:<shared|exclusive>[;written];cluster=<id>;topic=<id>;[state=<state>;]``. An unknown id is
empty. The last semicolon ends it: confluent-kafka can return bytes after the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.state import origins
from streamgroups.state.lookup import Position
from streamgroups.state.origins import UNNAMED, StateOrigin

_FORM = re.compile(
    r"streamgroups:(?P<mode>shared|exclusive)(?P<written>;written)?"
    r";cluster=(?P<cluster>[A-Za-z0-9%._~-]{0,1000});topic=(?P<topic>[A-Za-z0-9%._~-]{0,1000});"
    r"(?:state=(?P<state>[a-z0-9@.-]{1,200});)?",
    re.ASCII,
)
#: Kafka's ids have 22 characters. A broker limits metadata to 4,096 bytes, so a longer id is left out.
_MAX_ID_LENGTH = 1_000


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The metadata of a committed offset.

    Args:
        exclusive: whether its member is an exclusive one.
        written: whether a sink committed it, together with the output of the records before it.
        identity: the topic of the offset.
        state: the state of the offset.

    >>> mark = CommitMark(exclusive=False, written=True, identity=TopicIdentity("c1", "t1"))
    >>> mark.encode()
    'streamgroups:shared;written;cluster=c1;topic=t1;'
    >>> CommitMark.parse(mark.encode() + "what is behind it in memory") == mark
    True
    """

    exclusive: bool
    written: bool = False
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin = UNNAMED

    def encode(self) -> str:
        """The mark as metadata."""
        mode, written = "exclusive" if self.exclusive else "shared", ";written" if self.written else ""
        ids = f"cluster={_quoted(self.identity.cluster_id)};topic={_quoted(self.identity.topic_id)};"
        state = origins.encode(self.state)
        return f"streamgroups:{mode}{written};{ids}" + (f"state={state};" if state else "")

    @classmethod
    def parse(cls, metadata: str) -> CommitMark | None:
        """Parses metadata; ``None`` if another tool wrote it.

        >>> CommitMark.parse("by hand") is None
        True
        """
        found = _FORM.match(metadata)
        if found is None:
            return None
        cluster_id, topic_id = unquote(found["cluster"]) or None, unquote(found["topic"]) or None
        identity = TopicIdentity(cluster_id, topic_id)
        state = origins.decode(found["state"] or "")
        return cls(found["mode"] == "exclusive", found["written"] is not None, identity, state)


def position_of(topic_partition: TopicPartition, next_offset: int, metadata: str) -> Position:
    """The position of a committed offset, for the lookup of its state.

    >>> position_of(TopicPartition("flights", 0), 5, "by hand").origin
    Unnamed()
    """
    mark = CommitMark.parse(metadata)
    if mark is None:
        return Position(topic_partition, next_offset, UNNAMED)
    return Position(topic_partition, next_offset, mark.state, mark.identity)


def names_state(metadata: str) -> bool:
    """Whether metadata can name a state. Quicker than to parse it, for the many partitions of a cluster.

    >>> names_state("by hand"), names_state("streamgroups:shared;cluster=;topic=;state=empty;")
    (False, True)
    """
    return ";state=" in metadata


def is_held_exclusively(metadata: Iterable[str]) -> bool:
    """Whether an exclusive member made one of the commits with this metadata."""
    return any(mark is not None and mark.exclusive for mark in map(CommitMark.parse, metadata))


def _quoted(id_: str | None) -> str:
    quoted = quote(id_ or "", safe="")
    return quoted if len(quoted) <= _MAX_ID_LENGTH else ""
