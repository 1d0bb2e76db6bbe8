"""The offset that Spark writes to its checkpoint for every batch, as JSON.

Written and read by ``streamgroups.query.micro_batches``, and read by tools that inspect checkpoints. It contains the
ranges of its batch, not only their ends. A partition may leave this query and return far ahead, so the end of the batch
before does not show where a batch began. A replay after a crash must read exactly the same records. Source: Spark's
``DataSourceStreamReader``; ``golden/`` in the unit tests has every version.

Version 2::

    {"version": 2, "n": 7, "ranges": {"flights": {"0": [10, 25]}}, "resting": {"flights": {"3": 40}},
     "cluster": "MkU3OEVBNTcwNTJENDM2Qg", "topics": {"flights": "59qrCPyIS22TMTuASmyo8Q"}, "group": "board", "form": "none"}

* ``n`` counts the batches of this query, and ``ranges`` are the ranges of batch ``n``.
* ``resting`` are the positions of owned partitions that batch ``n`` does not read.
* ``group`` is the group of the query. Two groups can read the same ranges in batches with the same number, and a sink
  must distinguish them.
* ``form`` is the form of the program of the query (:mod:`streamgroups.groups.program`).
* ``run`` differs in each run of each query, and is only compared. Of two members of one group, one may replay the batch
  that the other has lost.
* ``cluster`` and ``topics`` are the ids of the cluster and of its topics, if the brokers have ids
  (:mod:`streamgroups.identity`).
* ``warm_ups`` counts batches without records that have followed. A query starts its workers with them before it joins
  other members.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroups.checkpoints.spark_kafka import kafka_offset
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.identity import TopicIdentity
from streamgroups.json_values import items, partition_number, string, whole
from streamgroups.partitions import OffsetRange, TopicPartition

VERSION = 2


@dataclass(frozen=True, slots=True)
class BatchOffset:
    """The content of the checkpoint after a batch was planned.

    Args:
        number: 0 before the first batch.
        ranges: the ranges that the batch reads.
        resting: next offsets of the owned partitions that it does not read.
        warm_ups: the total number of batches without records that have followed.
        group_id: the group of the query.
        cluster_id: the id of the cluster; ``None`` if the brokers do not provide it.
        topic_ids: the ids of the topics, as far as the brokers provide them.
        resets: the last reset that each position contained when the batch was planned. Partitions without one are left out.
        form: the form of the program of the query. Empty if it is unknown.
    """

    number: int
    ranges: tuple[OffsetRange, ...] = ()
    resting: Mapping[TopicPartition, int] = field(default_factory=dict)
    warm_ups: int = 0
    group_id: str | None = None
    cluster_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    resets: Mapping[TopicPartition, AppliedReset] = field(default_factory=dict)
    form: str = ""

    def reset_of(self, topic_partition: TopicPartition) -> AppliedReset:
        """The last reset that the position of a partition contained."""
        return self.resets.get(topic_partition, NO_RESET)

    def identity(self, topic: str) -> TopicIdentity:
        """The ids that belong to the positions of a topic."""
        return TopicIdentity(self.cluster_id, self.topic_ids.get(topic))

    def with_identities(self, identities: Mapping[str, TopicIdentity]) -> BatchOffset:
        """The same offset, with the ids of its topics."""
        topics = {tp.topic for tp in self.next_offsets}
        known = {topic: identities[topic] for topic in sorted(topics & identities.keys())}
        cluster_ids = {it.cluster_id for it in known.values() if it.cluster_id is not None}
        topic_ids = {topic: it.topic_id for topic, it in known.items() if it.topic_id is not None}
        return replace(self, cluster_id=min(cluster_ids, default=None), topic_ids=topic_ids)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The position of every partition of this offset after the batch is done."""
        return {**self.resting, **{r.topic_partition: r.end_offset for r in self.ranges}}


def encode(offset: BatchOffset) -> dict[str, Any]:
    """The JSON object of an offset.

    >>> encode(BatchOffset(1, (OffsetRange(TopicPartition("t", 0), 3, 5),)))
    {'version': 2, 'n': 1, 'ranges': {'t': {'0': [3, 5]}}, 'resting': {}}
    """
    ranges: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
    for r in sorted(offset.ranges):
        tp = r.topic_partition
        ranges[tp.topic][str(tp.partition)] = [r.next_offset, r.end_offset]
    resting: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for tp, next_offset in sorted(offset.resting.items()):
        resting[tp.topic][str(tp.partition)] = next_offset
    encoded: dict[str, Any] = {
        "version": VERSION,
        "n": offset.number,
        "ranges": dict(ranges),
        "resting": dict(resting),
    }
    if offset.cluster_id is not None:
        encoded["cluster"] = offset.cluster_id
    if offset.topic_ids:
        encoded["topics"] = dict(sorted(offset.topic_ids.items()))
    if offset.group_id is not None:
        encoded["group"] = offset.group_id
    if offset.form:
        encoded["form"] = offset.form
    resets: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for tp, reset in sorted(offset.resets.items()):
        if reset != NO_RESET:
            resets[tp.topic][str(tp.partition)] = reset.encode()
    if resets:
        encoded["resets"] = dict(resets)
    return {**encoded, "warm_ups": offset.warm_ups} if offset.warm_ups else encoded


def decode(json_object: Any, *, group_id: str = "GROUP", checkpoint: str = "CHECKPOINT") -> BatchOffset:
    """Parses an offset.

    Args:
        json_object: the offset.
        group_id: the group of the query, for an error.
        checkpoint: the location of the checkpoint, for an error.

    Raises:
        OffsetFormat: if another source, or another version of this library, has written it. If that is Spark's ``kafka``
            source, the error names the command that imports its positions.

    >>> decode({"version": 2, "n": 1, "ranges": {"t": {"0": [3, 5]}}, "resting": {}}).number
    1
    """
    version = json_object.get("version") if isinstance(json_object, dict) else None
    if json_object and kafka_offset(json_object) is not None:
        raise OffsetFormat(
            "The checkpoint belongs to a query of format('kafka'), so format('streamgroups') cannot continue from it: its "
            f"offset is {_shortened(json_object)}.",
            remedy=f"Import its positions: streamgroups groups import --from-spark-checkpoint {shlex.quote(checkpoint)} "
            f"--group {shlex.quote(group_id)} --execute. Then start this query with a new checkpointLocation.",
        )
    if type(version) is not int or version < 1:
        raise OffsetFormat(
            f"The checkpoint contains an offset that streamgroups did not write: {_shortened(json_object)}.",
            remedy="Set another checkpointLocation for this query. The group stores the positions.",
        )
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise OffsetFormat(
            f"The checkpoint was written by {age} streamgroups (offset version {version}, supported version {VERSION}).",
            remedy="Install the version that wrote it, or set a new checkpointLocation. The group stores the positions.",
        )
    try:
        offset = BatchOffset(
            number=whole(json_object["n"]),
            ranges=tuple(
                sorted(
                    OffsetRange(TopicPartition(topic, partition_number(partition)), whole(first), whole(end))
                    for topic, by_partition in items(json_object["ranges"])
                    for partition, (first, end) in items(by_partition)
                )
            ),
            resting={
                TopicPartition(topic, partition_number(partition)): whole(next_offset)
                for topic, by_partition in items(json_object["resting"])
                for partition, next_offset in items(by_partition)
            },
            warm_ups=whole(json_object.get("warm_ups", 0)),
            group_id=json_object.get("group"),
            cluster_id=json_object.get("cluster"),
            topic_ids=dict(items(json_object.get("topics", {}))),
            resets={
                TopicPartition(topic, partition_number(partition)): AppliedReset.parse(string(reset))
                for topic, by_partition in items(json_object.get("resets", {}))
                for partition, reset in items(by_partition)
            },
            form=string(json_object.get("form", "")),
        )
        if not isinstance(offset.group_id, str | None):
            raise TypeError("the group is not a string")
        if not all(isinstance(id_, str) for id_ in (offset.cluster_id or "", *offset.topic_ids.values())):
            raise TypeError("an id is not a string")
    except (KeyError, TypeError, ValueError, InvalidOption) as e:
        raise OffsetFormat(
            f"The checkpoint contains a damaged offset: {_shortened(json_object)} ({type(e).__name__}: {e}).",
            remedy="Restore the checkpoint, or set a new checkpointLocation. The group stores the positions.",
        ) from e
    return offset


def _shortened(json_object: Any) -> str:
    try:
        text = str(json_object)
    except (RecursionError, ValueError):
        text = "a value that is too large to show"
    return text if len(text) <= 200 else text[:200] + "…"
