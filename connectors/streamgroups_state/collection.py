"""Deletes the state files that no state needs.

Called by ``streamgroups_spark.source.state_collection`` in the background of a query, and by ``streamgroups state
collect``. The rules are in :mod:`streamgroups.state.retention`. Files never change, so each manifest is read once.
Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from streamgroups.errors import StateDamaged
from streamgroups.state.lookup import Position
from streamgroups.state.manifest import Manifest, decode
from streamgroups.state.names import StateFileName
from streamgroups.state.retention import Retention, deletable
from streamgroups.state.state_files import StateFiles
from streamgroups_state.file_format import unpack


@dataclass(frozen=True, slots=True)
class Collectable:
    """The files of an operator, and those that no state needs.

    Args:
        sizes: the size of each file in bytes.
        files: the files that no state needs.
        cluster_ids: the clusters whose partitions have states.
    """

    sizes: dict[StateFileName, int]
    files: frozenset[StateFileName]
    cluster_ids: frozenset[str] = field(default_factory=frozenset)


class Collector:
    """Collects the files of one operator. Used by one thread.

    Args:
        files: the files of the operator.
        retention: how long states are kept.
        now_ms: the time in milliseconds since the epoch.
    """

    def __init__(self, files: StateFiles, retention: Retention, now_ms: Callable[[], int]) -> None:
        self._files, self._retention, self._now_ms = files, retention, now_ms
        self._manifests: dict[StateFileName, Manifest] = {}

    def plan(self, committed: Collection[Position]) -> Collectable:
        """Finds the files that no state needs.

        Args:
            committed: the committed offsets of the group, read before this call. A state that is committed later refers
                only to files of their states, and to young files.

        Raises:
            StateDamaged: if a file is damaged. It can need any other file, and a backup can restore it.
            StateUnreachable: if the storage does not answer.
        """
        listed = self._files.list()
        self._manifests = {file: manifest for file, manifest in self._manifests.items() if file in listed}
        for file in listed.keys() - self._manifests.keys():
            try:
                self._manifests[file] = self._read(file)
            except FileNotFoundError:
                # Another member has deleted it.
                continue
            except ValueError as e:
                raise StateDamaged(
                    f"The state file '{file}' in '{self._files.location}' is damaged: {e}. No state files are deleted.",
                    remedy="Restore the file from a backup, or remove it.",
                ) from e
        gone = deletable(self._manifests.values(), committed, self._retention, self._now_ms())
        identities = {state.identity for manifest in self._manifests.values() for state in manifest.states}
        clusters = frozenset(it.cluster_id for it in identities if it.cluster_id is not None)
        return Collectable(listed, gone, clusters)

    def _read(self, file: StateFileName) -> Manifest:
        # A file apart can be large. It has no states.
        return Manifest(file, "", "", "", ()) if file.is_apart else decode(unpack(self._files.read(file))[0], file)

    def delete(self, files: Collection[StateFileName]) -> None:
        """Deletes files of a plan.

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        self._files.delete(files)
