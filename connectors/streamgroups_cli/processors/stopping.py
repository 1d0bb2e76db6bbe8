"""``streamgroups processors stop``: requests that processors stop, and creates a savepoint of them. Source: SEMANTICS P2, C3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import PartlyDone, StreamGroupsError
from streamgroups.instances.instance_state import InstanceState
from streamgroups.instances.requests import is_stopped, stopped
from streamgroups.shell_quoting import names as names_of
from streamgroups_cli.instance_log import InstanceOptions, OpenInstance, open_instance, require_defined
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.processors.positions import processor_group
from streamgroups_cli.processors.starting import Names


@with_options
def stop(
    options: InstanceOptions,
    names: Names,
    savepoint: Annotated[
        str | None,
        typer.Option(
            "--savepoint",
            metavar="LOCATION",
            help="Create a savepoint of each processor at this location, after it has stopped.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str,
        typer.Option("--wait", metavar="DURATION", help="Maximum time until they have stopped; 0s returns at once."),
    ] = "1m",
) -> None:
    """Stop processors in an orderly way. Their groups, positions and states stay.

    Exit code: 0 if they have stopped, 1 if one does not stop in time, 4 if they have stopped and one has no savepoint.
    """
    wait_s = parse_duration_ms(wait, option="--wait") / 1_000
    names = list(dict.fromkeys(names))
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, names, instance.name)
        entries = [it for name in names if (it := stopped(state, name)) is not None]
        if entries:
            instance.write(entries)
        if not wait_s and savepoint is None:
            print_message("The request is written.")
            return

        def have_stopped(now: InstanceState) -> bool:
            return all(is_stopped(now, name) for name in names)

        state = instance.wait_for(have_stopped, wait_s, f"Not all of {', '.join(names)} have stopped")
        failures: dict[str, StreamGroupsError] = {}
        for name in names:
            print_message(f"{name}: stopped")
            if savepoint is not None:
                try:
                    _save(instance, state, name, savepoint)
                except StreamGroupsError as e:
                    failures[name] = e
        if failures:
            is_unchanged = not entries and failures.keys() == set(names)
            raise next(iter(failures.values())) if is_unchanged else _partly(names, failures)


def _partly(names: Sequence[str], failures: Mapping[str, StreamGroupsError]) -> PartlyDone:
    """Returns the error if processors have stopped, and some of them have no savepoint."""
    whats = dict.fromkeys(it.what for it in failures.values())
    remedies = dict.fromkeys(it.remedy for it in failures.values() if it.remedy)
    saved = [it for it in names if it not in failures]
    have = f" Savepoints exist of: {', '.join(saved)}." if saved else ""
    return PartlyDone(
        f"Stopped: {', '.join(names)}.{have} Without a savepoint: {', '.join(failures)}. {' '.join(whats)}",
        remedy=f"{' '.join(remedies)} Then repeat the command for: {names_of(failures)}.".strip(),
    )


def _save(instance: OpenInstance, state: InstanceState, name: str, location: str) -> None:
    from streamgroups_admin.savepoints.store import create_savepoint
    from streamgroups_operators.savepoints.directory import SavepointDirectory

    with processor_group(instance.name, state.definitions[name], instance.timeout_s) as group:
        record = create_savepoint(group.cluster, group.group_id, location, group.state_location)
    print_message(f"The savepoint is {SavepointDirectory(location, record.id)}")
