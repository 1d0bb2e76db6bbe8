"""Decides which pins, and which files of pinned records, are deleted.

Called by ``streamgroups_operators.pin_store``. A pin can be needed until the group has committed the end of its range: until
then a replay or the next owner begins in it. After that only a reset to an earlier offset uses it, so it is kept for a time
that the user sets. A slow zombie needs no pin: after it has written its own, the broker does not confirm its membership,
and its effect does not run. Source: SEMANTICS X7.

A *young* file of records is always kept: its batch may not have written its pins yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.stable_input.pins import Pin, PinFile
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_retention import YOUNG_MS, Retention

__all__ = ["YOUNG_MS", "DeletablePins", "Retention", "deletable"]


@dataclass(frozen=True, slots=True)
class DeletablePins:
    """The files to delete, in this order: no pin names records that do not exist.

    Args:
        pins: the pin files.
        records: the files of records.
    """

    pins: frozenset[StateFileName]
    records: frozenset[StateFileName]


def deletable(
    files: Iterable[PinFile],
    record_files: Iterable[StateFileName],
    committed: Mapping[TopicPartition, int],
    identities: Mapping[TopicPartition, TopicIdentity],
    retention: Retention,
    ages_ms: Mapping[StateFileName, int],
) -> DeletablePins:
    """The files that no batch needs.

    Args:
        files: all pin files of an effect.
        record_files: all its files of records.
        committed: the committed offsets of the group. A partition without one keeps its pins.
        identities: the current topics of the partitions, as far as they are known.
        retention: how long pins are kept.
        ages_ms: the age of each pin file and file of records, in milliseconds: the lower one of files of the same name.
            A file without an age is kept.

    >>> deletable([], [], {}, {}, Retention(600_000), ages_ms={})
    DeletablePins(pins=frozenset(), records=frozenset())
    """
    files = list(files)
    # The committed offsets are those of one cluster, also of partitions that the batch does not read.
    of_cluster = TopicIdentity(next((it.cluster_id for it in identities.values() if it.cluster_id is not None), None))
    gone = {
        file.file
        for file in files
        if ages_ms.get(file.file, 0) > retention.keep_ms
        and all(_is_over(pin, committed, identities.get(pin.range.topic_partition, of_cluster)) for pin in file.pins)
    }
    needed = frozenset[StateFileName]().union(*(file.record_files for file in files if file.file not in gone))
    young_ms = max(retention.keep_ms, retention.young_ms)
    named = frozenset[StateFileName]().union(*(file.record_files for file in files))
    records = {it for it in record_files if it not in needed and (it in named or ages_ms.get(it, 0) > young_ms)}
    return DeletablePins(frozenset(gone), frozenset(records))


def _is_over(pin: Pin, committed: Mapping[TopicPartition, int], identity: TopicIdentity) -> bool:
    if pin.identity.is_of_another_cluster(identity):
        return False
    if pin.identity.differs_from(identity):
        # The topic was recreated: none of these records will be read again.
        return True
    next_offset = committed.get(pin.range.topic_partition)
    return next_offset is not None and next_offset >= pin.range.end_offset
