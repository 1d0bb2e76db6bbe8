"""Removing what a batch has staged and nobody needs: files that no version of the table has ever named.

Called by ``sink`` when a batch is over. What cannot be known to be unneeded is left to VACUUM. Source: Delta's protocol, "Delta Log Entries".
"""

from __future__ import annotations

import json

from streamgroups_delta.stages import Stage
from streamgroups_delta.store import Store
from streamgroups_delta.tables import Mode, Target, table_id

#: A batch is over long before the table has so many versions more.
_MAX_VERSIONS = 1_000


def remove_leftovers(target: Target, stage: Stage) -> None:
    """Removes the files of a stage that were not committed, as far as that is certain.

    Args:
        target: the table.
        stage: what the batch has staged; it will not be committed any more.

    Raises:
        Exception: whatever the store does not do; nothing that the table needs is gone.
    """
    store = Store(target.uri, target.storage_options)
    there = store.sizes(stage.directory)
    # What is merged is read, never named.
    committed = frozenset[str]() if target.mode is Mode.UPSERT else _committed(target, store, stage)
    if committed is None:
        return
    # A commit whose answer was lost may still arrive at a remote store.
    if committed or store.is_local or target.mode is Mode.UPSERT:
        for path in there:
            if path not in committed:
                store.delete(path)
    store.forget_directory(stage.directory)


def _committed(target: Target, store: Store, stage: Stage) -> frozenset[str] | None:
    """The files of a stage that a version of the table names or has named; ``None`` if that is not known."""
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
