"""Manifests without what retention does not read.

Used by ``streamgroups_operators.collection``, which keeps the manifests of all files in memory: with a trigger of a second they are
hundreds of thousands. Source: SEMANTICS S10; :mod:`streamgroups.state.state_retention`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from streamgroups.partitions import OffsetRange
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_topics import PARTNER
from streamgroups.state.manifest import Manifest, PartitionState, Segment

_T = TypeVar("_T")


class Essentials:
    """Reduces manifests. Equal values of several manifests become one object.

    A state keeps its partition, its offsets, its topic, the file before it, and one segment for each other file that contains
    its rows. It also keeps the partner of a join, and what a commit names: when it is due, and its event time.

    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> Essentials().of(Manifest(file, "billing", "windows", "count(*)", ()))
    Manifest(file=StateFileName(planned_ms=1732334879123, run_id='1f3a9c2b7d10', batch=17, attempt=42, is_apart=False, task=0), \
group_id='', operator='', form='', states=())
    """

    def __init__(self) -> None:
        self._objects: dict[Any, Any] = {}
        self._parts: dict[frozenset[StateFileName], Mapping[str, tuple[Segment, ...]]] = {}
        self._values: dict[int | str | None, Mapping[str, int | str | None]] = {None: {}}

    def of(self, manifest: Manifest) -> Manifest:
        """Returns the reduced manifest, for which :func:`streamgroups.state.state_retention.deletable` decides the same.

        Args:
            manifest: the manifest of a state file.
        """
        file = self._one(manifest.file)
        return Manifest(file, "", "", "", tuple(self._state(it, file) for it in manifest.states))

    def _state(self, state: PartitionState, file: StateFileName) -> PartitionState:
        partner = state.values.get(PARTNER)
        return replace(
            state,
            range=OffsetRange(self._one(state.topic_partition), state.range.next_offset, state.range.end_offset),
            identity=self._one(state.identity),
            parts=self._parts_in(state.files - {file}),
            values=self._values.setdefault(partner, {PARTNER: partner}),
            time=self._one(state.time),
            after=self._one(state.after),
        )

    def _parts_in(self, files: frozenset[StateFileName]) -> Mapping[str, tuple[Segment, ...]]:
        known = self._parts.get(files)
        if known is None:
            segments = tuple(Segment(self._one(it), 0, 0, 0) for it in sorted(files))
            known = self._parts[files] = {"": segments} if segments else {}
        return known

    def _one(self, value: _T) -> _T:
        """The first of equal objects."""
        return self._objects.setdefault(value, value)  # type: ignore[no-any-return]
