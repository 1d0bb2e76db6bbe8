"""Deletes the state files that no state needs.

Called by ``streamgroups_spark.source.stage_states`` in the background of a query, and by ``streamgroups state
collect``. The rules are in :mod:`streamgroups.state.state_retention`. Files never change, so each manifest is read once, and its essential part stays in
memory. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from streamgroups.errors import StateDamaged
from streamgroups.partitions import TopicPartition
from streamgroups.state.essentials import Essentials
from streamgroups.state.file_ages import FileAges
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, decode
from streamgroups.state.state_files import CollectableFiles
from streamgroups.state.state_lookup import Position
from streamgroups.state.state_retention import Retention, deletable
from streamgroups.threads import in_threads
from streamgroups_operators.file_format import unpack


@dataclass(frozen=True, slots=True)
class Collectable:
    """The files of an operator, and those that no state needs.

    Args:
        sizes: the size of each file in bytes.
        files: the files that no state needs.
        cluster_ids: the clusters whose partitions have states.
        unfinished: old files that a write has left unfinished, with their sizes.
        partitions: the partitions with states.
    """

    sizes: dict[StateFileName, int]
    files: frozenset[StateFileName]
    cluster_ids: frozenset[str] = field(default_factory=frozenset)
    unfinished: Mapping[StateFileName, int] = field(default_factory=dict)
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)


class Collector:
    """Collects the files of one operator. Used by one thread.

    Args:
        files: the files of the operator.
        retention: how long states are kept.
        monotonic_ms: a monotonic clock in milliseconds.
    """

    def __init__(self, files: CollectableFiles, retention: Retention, monotonic_ms: Callable[[], int]) -> None:
        self._files, self._retention, self._monotonic_ms = files, retention, monotonic_ms
        self._ages = FileAges()
        self._manifests: dict[StateFileName, Manifest] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions with states, as of the last plan."""
        states = (state for manifest in self._manifests.values() for state in manifest.states)
        return frozenset(it.topic_partition for it in states)

    def plan(self, committed: Collection[Position]) -> Collectable:
        """Finds the files that no state needs.

        Args:
            committed: the committed offsets of the group, read before this call. A state that is committed later refers
                only to files of their states, and to young files. :func:`streamgroups_operators.shared_files.plan_all`
                completes them.

        Raises:
            StateDamaged: if a file is damaged. It can need any other file, and a backup can restore it.
            StateUnreachable: if the storage does not answer.
        """
        survey = self._files.survey()
        listed, ages = survey.files, self._ages.observe(survey, self._monotonic_ms())
        self._manifests = {file: manifest for file, manifest in self._manifests.items() if file in listed}
        essentials = Essentials()
        for manifest in in_threads(self._read, sorted(listed.keys() - self._manifests.keys())):
            if manifest is not None:
                self._manifests[manifest.file] = essentials.of(manifest)
        gone = deletable(self._manifests.values(), committed, self._retention, ages.files)
        old = {file: survey.unfinished[file].n_bytes for file in ages.unfinished_since(self._retention.young_ms)}
        identities = {state.identity for manifest in self._manifests.values() for state in manifest.states}
        clusters = frozenset(it.cluster_id for it in identities if it.cluster_id is not None)
        sizes = {file: it.n_bytes for file, it in listed.items()}
        return Collectable(sizes, gone, clusters, old, self.partitions)

    def _read(self, file: StateFileName) -> Manifest | None:
        if file.is_apart:
            # It can be large. It has no states.
            return Manifest(file, "", "", "", ())
        try:
            return decode(unpack(self._files.read(file))[0], file)
        except FileNotFoundError:
            # Another member has deleted it.
            return None
        except ValueError as e:
            raise StateDamaged(
                f"The state file '{file}' in '{self._files.location}' is damaged: {e}. No state files are deleted.",
                remedy="Restore the file from a backup, or remove it.",
            ) from e

    def delete(self, plan: Collectable) -> None:
        """Deletes the files of a plan.

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        self._files.delete(plan.files)
        self._files.delete_unfinished(plan.unfinished)
