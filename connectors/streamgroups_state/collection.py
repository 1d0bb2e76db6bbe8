"""Deletes the state files that no state needs.

Called by ``streamgroups_spark.source.state_collection`` in the background of a query. The rules are in
:mod:`streamgroups.state.retention`. Files never change, so each manifest is read once. Source: SEMANTICS S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from streamgroups.partitions import TopicPartition
from streamgroups.state.manifest import Manifest, decode
from streamgroups.state.names import StateFileName
from streamgroups.state.retention import Retention, deletable
from streamgroups.state.state_files import StateFiles
from streamgroups_state.file_format import unpack

logger = logging.getLogger(__name__)


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

    def collect(self, committed: Collection[tuple[TopicPartition, StateFileName]]) -> frozenset[StateFileName]:
        """Deletes files. Returns their names.

        A damaged file can need any other file, and a backup can restore it. So nothing is deleted while one exists.

        Args:
            committed: the states that committed offsets name.

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        listed = self._files.list()
        self._manifests = {file: manifest for file, manifest in self._manifests.items() if file in listed}
        for file in listed.keys() - self._manifests.keys():
            try:
                self._manifests[file] = decode(unpack(self._files.read(file))[0], file)
            except FileNotFoundError:
                # Another member has deleted it.
                continue
            except ValueError as e:
                logger.warning(
                    "The state file '%s' in '%s' is damaged: %s. Old state files are not deleted until it is restored "
                    "or removed",
                    file,
                    self._files.location,
                    e,
                )
                return frozenset()
        gone = deletable(self._manifests.values(), committed, self._retention, self._now_ms())
        self._files.delete(gone)
        return gone
