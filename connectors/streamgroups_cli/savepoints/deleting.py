"""``streamgroups savepoint delete``: deletes a savepoint, also one that was not completed. Source: SEMANTICS C3."""

from __future__ import annotations

from streamgroups.errors import SavepointDamaged, UnknownSavepoint
from streamgroups_admin.savepoints.store import require_exists
from streamgroups_cli.groups.apply import ONLY_A_PLAN
from streamgroups_cli.options import ExecuteOption
from streamgroups_cli.output import print_message
from streamgroups_cli.savepoints.arguments import Location, SavepointId
from streamgroups_operators.savepoints.directory import SavepointDirectory


def delete(
    location: Location,
    savepoint: SavepointId,
    execute: ExecuteOption = False,
) -> None:
    """Delete a savepoint, which cannot be undone."""
    directory = SavepointDirectory(location, savepoint)
    require_exists(directory)
    print_message(_about(directory))
    if execute:
        directory.delete()
        print_message(f"The savepoint {savepoint} is deleted.")
    else:
        print_message(ONLY_A_PLAN)


def _about(directory: SavepointDirectory) -> str:
    try:
        record = directory.read()
    except (UnknownSavepoint, SavepointDamaged) as e:
        return e.what
    n_bytes = sum(it.n_bytes for it in record.operators)
    copied = "" if record.checkpoint is None else f", and a checkpoint of {record.checkpoint.n_bytes} bytes"
    return (
        f"The savepoint {record.id} of group '{record.group_id}' has {len(record.positions)} positions and {n_bytes} bytes of "
        f"states{copied}."
    )
