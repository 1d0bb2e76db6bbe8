"""Removes staged files that no version of the table has ever contained.

Called by ``sink`` at the end of a batch. Files that may be needed are left to VACUUM. Source: Delta's protocol, "Delta
Log Entries".
"""

from __future__ import annotations

import json

from streamgroups_sinks.delta.stages import Stage
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.tables import Mode, Target, table_id

#: A batch ends long before the table has this number of newer versions.
_MAX_VERSIONS = 1_000


def remove_leftovers(target: Target, stage: Stage) -> None:
    """Removes the files of a stage that were certainly not committed.

    Args:
        target: the table.
        stage: the stage of the batch, which will not be committed any more.

    Raises:
        Exception: if the store fails. No file of the table is removed.
    """
    store = Store(target.uri, target.storage_options)
    there = store.sizes(stage.directory)
    # Files of a merge are read, and the log never contains them.
    committed = frozenset[str]() if target.mode is Mode.UPSERT else _committed(target, store, stage)
    if committed is None:
        return
    # A commit without a reply may still reach a remote store later.
    if committed or store.is_local or target.mode is Mode.UPSERT:
        for path in there:
            if path not in committed:
                store.delete(path)
    store.forget_directory(stage.directory)


def _committed(target: Target, store: Store, stage: Stage) -> frozenset[str] | None:
    """Returns the files of a stage that any version of the table contains. ``None`` if that is unknown."""
    table = target.open()
    newest = table.version()
    if table_id(table) != stage.table_id or not 0 <= newest - stage.version <= _MAX_VERSIONS:
        return None
    found = set()
    for version in range(stage.version + 1, newest + 1):
        try:
            entry = store.read_text(f"_delta_log/{version:020}.json")
        except FileNotFoundError:
            return None
        actions = (json.loads(line) for line in entry.splitlines() if line.strip())
        paths = (action["add"]["path"] for action in actions if "add" in action)
        found |= {path for path in paths if path.startswith(f"{stage.directory}/")}
    return frozenset(found)
