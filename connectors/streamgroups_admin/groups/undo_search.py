"""Finds the last change of a group in the undo files of the state directory.

Used by ``groups undo``, and by each change, which can complete an unfinished earlier one. Source: SEMANTICS O2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups.groups.offset_files import FiledOffset, FiledOffsets, Links
from streamgroups.groups.undo_history import has_no_effect
from streamgroups.identity import UNKNOWN
from streamgroups.partitions import TopicPartition
from streamgroups.path_names import label
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.live_reset import has_waiting_requests
from streamgroups_admin.groups.stored_files import marker_of, newest_undo_files, read_links, read_offsets_file


@dataclass(frozen=True, slots=True)
class StoredUndo:
    """The undo file of a change, and its part about one group.

    Args:
        path: the file.
        filed: the partitions of the group.
        links: the undo files that it names.
        is_unfinished: whether the change was not confirmed as a whole.
    """

    path: Path
    filed: Mapping[TopicPartition, FiledOffset]
    links: Links
    is_unfinished: bool


@dataclass(frozen=True, slots=True)
class UndoSearch:
    """The search in the undo files. It reads each file once.

    Args:
        cluster: the cluster.
        notify: receives notices about files that are skipped.
    """

    cluster: Cluster
    notify: Callable[[str], None]
    _read: dict[Path, FiledOffsets | InvalidOption] = field(default_factory=dict)

    def last_change(self, group_id: str, committed: Mapping[TopicPartition, FiledOffset]) -> StoredUndo | None:
        """Returns the undo file of the last change of a group in this cluster that has an effect; ``None`` without one.

        Other groups have files there too. One that cannot be read must not hide the others, so it is skipped with a notice.

        Args:
            group_id: the group.
            committed: its committed offsets now.

        Raises:
            InvalidOption: if a file that cannot be read can be that of the last change. An older file would undo another one.
        """
        for name, path in newest_undo_files():
            content = self._content(path)
            if isinstance(content, InvalidOption):
                if name.can_list(label(group_id)):
                    raise content
                self.notify(f"Warning: An undo file is skipped: {content.what}")
                continue
            filed = content.get(group_id)
            if not filed or self._is_of_another_cluster(filed):
                continue
            is_unfinished = marker_of(path).exists()
            if is_unfinished and self._has_no_effect(group_id, filed, committed):
                self.notify(f"{path} is skipped: its change was interrupted before it had an effect.")
                continue
            return StoredUndo(path, filed, read_links(path), is_unfinished)
        return None

    def _content(self, path: Path) -> FiledOffsets | InvalidOption:
        if path not in self._read:
            try:
                self._read[path] = read_offsets_file(path, None)
            except InvalidOption as e:
                self._read[path] = e
        return self._read[path]

    def _is_of_another_cluster(self, filed: Mapping[TopicPartition, FiledOffset]) -> bool:
        now = self.cluster.topics.identities({tp.topic for tp in filed})
        return any(it.identity.is_of_another_cluster(now.get(tp.topic, UNKNOWN)) for tp, it in filed.items())

    def _has_no_effect(
        self,
        group_id: str,
        filed: Mapping[TopicPartition, FiledOffset],
        committed: Mapping[TopicPartition, FiledOffset],
    ) -> bool:
        # Members apply a request that was written.
        return has_no_effect(filed, committed) and not has_waiting_requests(self.cluster, group_id, filed.keys())
