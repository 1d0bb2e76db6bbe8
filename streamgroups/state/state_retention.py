"""Decides which state files are deleted.

Called by ``streamgroups_operators.collection`` for the driver of a query and for ``streamgroups state collect``. A reset to an
earlier offset needs a state at or before this offset, so states are kept for a time that the user sets. Source: SEMANTICS
S10.

A state is kept if

* a committed offset names it,
* a committed offset that names none continues with it: a tool has reset a group whose queries are stopped,
* it is not older than the retention,
* or it is the latest older state of its partition, or one with which a state within the retention continues: a reset to the
  start of the retention begins there.

A file is kept if one of its states is kept, or if a kept state has a segment in it. Its other states can be older, and
incomplete: a search ignores these. A *young* file is always kept: the batch that has written it may not be committed yet. A
slow attempt of a task, which another one has replaced, writes a file of its own that no offset names. Ages come from
:mod:`streamgroups.state.file_ages`, not from the names of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_lookup import choose_together, partner_of
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import Earlier, Named, New
from streamgroups.state.state_lookup import Choice, OnMissingState, Position, Stored, choose

#: A file of this age that no state needs belongs to no batch in flight, but to an attempt that was replaced.
YOUNG_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long states are kept.

    Args:
        keep_ms: how far back a reset keeps its state.
        young_ms: the age at which a file can be deleted if no state needs it. Longer than any batch.
    """

    keep_ms: int
    young_ms: int = YOUNG_MS


def deletable(
    manifests: Iterable[Manifest],
    committed: Iterable[Position],
    retention: Retention,
    ages_ms: Mapping[StateFileName, int],
) -> frozenset[StateFileName]:
    """The files that no kept state needs.

    Args:
        manifests: the manifests of all files of an operator.
        committed: the committed offsets of the group.
        retention: how long states are kept.
        ages_ms: the age of each file, in milliseconds. A file without an age is kept.

    >>> deletable([], [], Retention(3_600_000, 600_000), ages_ms={})
    frozenset()
    """
    by_file = {it.file: it for it in manifests if it.file in ages_ms}
    needed = set()
    kept = _kept_by_age(by_file.values(), ages_ms, retention.keep_ms)
    positions = {it.topic_partition: it for it in committed}
    of_partition: defaultdict[TopicPartition, list[Manifest]] = defaultdict(list)
    for manifest in by_file.values():
        for state_of_file in manifest.complete(by_file).states:
            of_partition[state_of_file.topic_partition].append(manifest)
    for tp, file in kept.union(*(_kept_by_commit(it, of_partition[tp], positions) for tp, it in positions.items())):
        state = by_file[file].state_of(tp) if file in by_file else None
        if state is not None:
            needed |= {file, *state.files}
    return frozenset(file for file in by_file if file not in needed and ages_ms[file] > retention.young_ms)


def _kept_by_commit(
    position: Position, manifests: Collection[Manifest], positions: Mapping[TopicPartition, Position]
) -> set[tuple[TopicPartition, StateFileName]]:
    """The states with which a committed offset continues.

    Args:
        position: the committed offset.
        manifests: the manifests with a state of its partition.
        positions: all committed offsets.
    """
    match position.origin:
        case New():
            return set()
        case Named(file=file) | Earlier(file=file):
            return {(position.topic_partition, file)}
    choices: tuple[Choice, ...]
    partner = _partner(position.topic_partition, manifests)
    if partner is not None and partner in positions:
        choices = choose_together(position, positions[partner], manifests, OnMissingState.EMPTY)
    else:
        choices = (choose(position, manifests, OnMissingState.EMPTY),)
    kept = {(it.state.topic_partition, it.file) for it in choices if isinstance(it, Stored)}
    if kept or choices[0].read_from == position.next_offset:
        return kept
    # A position within a first batch: the file of the batch contains the offset at which the state was empty.
    states = ((manifest.file, manifest.state_of(position.topic_partition)) for manifest in manifests)
    return {(position.topic_partition, file) for file, it in states if it is not None and it.is_first}


def _partner(tp: TopicPartition, manifests: Iterable[Manifest]) -> TopicPartition | None:
    """The partition that is joined with a partition, by its newest state."""
    states = ((manifest.file, state) for manifest in manifests if (state := manifest.state_of(tp)) is not None)
    newest = max(states, key=lambda it: it[0], default=None)
    return None if newest is None else partner_of(newest[1])


def _kept_by_age(
    manifests: Iterable[Manifest], ages_ms: Mapping[StateFileName, int], keep_ms: int
) -> set[tuple[TopicPartition, StateFileName]]:
    """The states that are not older than ``keep_ms``, those before them, and the latest older state of each partition."""
    kept: set[tuple[TopicPartition, StateFileName]] = set()
    latest: dict[TopicPartition, StateFileName] = {}
    for manifest in manifests:
        for state in manifest.states:
            tp = state.topic_partition
            if ages_ms[manifest.file] <= keep_ms:
                kept.add((tp, manifest.file))
                # After a restore it is not the latest older one.
                kept |= {(tp, state.after)} if state.after is not None else set()
            else:
                found = (latest.get(tp, manifest.file), manifest.file)
                latest[tp] = max(found, key=lambda file: (-ages_ms[file], file))
    return kept | set(latest.items())
