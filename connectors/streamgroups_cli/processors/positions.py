"""The positions from which a processor starts: a reset of its group, or a savepoint. ``processors start`` uses it.

Source: SEMANTICS O1, C3; ``streamgroups groups reset``, ``streamgroups savepoint restore``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.reset_plan import Scenario
from streamgroups.instances.entries import Definition
from streamgroups.positions import AtTime, Latest, TrimHorizon, parse_time_ms
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.output import print_message
from streamgroups_spark.processors.run_directories import state_directory

_WORDS: dict[str, Scenario] = {"earliest": TrimHorizon(), "latest": Latest()}
_WAIT_S = 60.0


def scenario_of(text: str, now_ms: int) -> Scenario:
    """Returns the position of ``--from``.

    Args:
        text: ``earliest``, ``latest``, a time, or a duration before now.
        now_ms: the time now, in milliseconds since the epoch.

    Raises:
        InvalidOption: if it is another text.

    >>> scenario_of("1h", 7_200_000)
    AtTime(timestamp_ms=3600000)
    """
    if text in _WORDS:
        return _WORDS[text]
    try:
        return AtTime(now_ms - parse_duration_ms(text, option="--from"))
    except InvalidOption:
        pass
    try:
        return AtTime(parse_time_ms(text, option="--from"))
    except InvalidOption as e:
        raise InvalidOption(
            f"--from is '{text}'.",
            remedy="Use earliest, latest, a time in ISO 8601, or a duration before now, as in 1h30m.",
        ) from e


def state_location_of(definition: Definition, group: str) -> str | None:
    """Returns the location of the states of a processor; ``None`` if it has none on this machine.

    Args:
        definition: its definition.
        group: its group.
    """
    source = definition.content.get("source")
    named = source.get("stateLocation") if isinstance(source, dict) else None
    if named is not None:
        return str(named)
    local = state_directory(group)
    return local if Path(local).is_dir() else None


def read_from(cluster: Cluster, group: str, topics: Sequence[str], text: str, state_location: str | None) -> None:
    """Resets a group without members, with its states.

    Args:
        cluster: the cluster.
        group: the group.
        topics: its topics; empty for those with committed offsets.
        text: the position.
        state_location: the location of its states.
    """
    from streamgroups_cli.groups.apply import ChangeOptions, carry_out
    from streamgroups_cli.groups.reset_plans import plan_scenario

    scope = dict.fromkeys(topics, None) if topics else None
    plans = plan_scenario(cluster, [group], scope, scenario_of(text, cluster.now_ms()))
    change = ChangeOptions(execute=True, state_location=state_location)
    carry_out(cluster, plans, change, why=f"before a start from {text}")


def restored_from(
    cluster: Cluster, group: str, savepoint: str, state_location: str | None, *, accept_repeated_output: bool
) -> None:
    """Restores a savepoint into a group without members.

    Args:
        cluster: the cluster.
        group: the group.
        savepoint: the location of savepoints, and the id.
        state_location: the location of the states of the group.
        accept_repeated_output: whether output after the savepoint can be written again.

    Raises:
        InvalidOption: if the text has no location.
        GroupRejected: if output would be written again, and this is not accepted.
    """
    from streamgroups.savepoints.restoring import Operators
    from streamgroups_admin.savepoints.restoring import (
        Restore,
        carry_out_restore,
        effects,
        plan_restore,
        require_accepted,
        target_of,
    )
    from streamgroups_operators.savepoints.directory import SavepointDirectory

    location, _, id_ = savepoint.rstrip("/").rpartition("/")
    if not location:
        raise InvalidOption(
            f"--savepoint is '{savepoint}'.", remedy="Write LOCATION/ID, as 'savepoint create' prints it."
        )
    directory, unchanged = SavepointDirectory(location, id_), Operators({}, frozenset())
    record = directory.read()
    states = state_location or state_directory(group)
    target = target_of(record, unchanged, group=group, state_location=states, checkpoint=None, is_state_only=False)
    restore = Restore(directory, record, target)
    plan = plan_restore(cluster, restore)
    for effect in effects(restore, plan):
        print_message(effect)
    require_accepted(restore, plan, accept_repeated_output=accept_repeated_output)
    carry_out_restore(cluster, restore, plan, undo_file=None, wait_s=_WAIT_S)
