"""``streamgroups processors start`` and ``restart``: request that processors run, also from other positions.

Source: SEMANTICS P2, O1, C3.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import GroupRejected, InvalidOption, QueryGivenUp, StreamGroupsError
from streamgroups.instances.instance_state import InstanceState
from streamgroups.instances.requests import failures, has_completed, has_started, is_stopped, started
from streamgroups_cli.instance_log import InstanceOptions, OpenInstance, open_instance, require_defined
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.processors.positions import after_resets, processor_group, reset_groups, restored_from

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Processors.", show_default=False)]
Wait = Annotated[
    str, typer.Option("--wait", metavar="DURATION", help="Maximum time until they run; 0s returns at once.")
]


@with_options
def start(
    options: InstanceOptions,
    names: Names,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Reset the group first: earliest, latest, a time in ISO 8601, or a duration before now.",
            show_default=False,
        ),
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", metavar="LOCATION/ID", help="Restore this savepoint first.", show_default=False),
    ] = None,
    accept_repeated_output: Annotated[
        bool,
        typer.Option(
            "--accept-repeated-output",
            help="With --savepoint: accept that the output after the savepoint is written again, beside the old one.",
        ),
    ] = False,
    accept_other_partitions: Annotated[
        bool,
        typer.Option(
            "--accept-other-partitions",
            help="With --savepoint: accept that partitions that the savepoint does not have keep their offsets and states.",
        ),
    ] = False,
    wait: Wait = "2m",
) -> None:
    """Start processors. A running one is not changed.

    Exit code: 0 if they run or have completed, 1 if one has failed or does not run in time, 3 if a running one would be reset,
    4 if a group was reset and its processor was not started.
    """
    wait_s = parse_duration_ms(wait, option="--wait") / 1_000
    if start_from is not None and savepoint is not None:
        raise InvalidOption("--from and --savepoint exclude each other.", remedy="Omit one of them.")
    if savepoint is not None and len(names) > 1:
        raise InvalidOption("A savepoint is that of one processor.", remedy="Start the processors one by one.")
    names = list(dict.fromkeys(names))
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, names, instance.name)
        if start_from is not None or savepoint is not None:
            _require_stopped(state, names)
        reset: list[str] = []
        with ExitStack() as stack:
            positioned = names if start_from is not None or savepoint is not None else []
            definitions = [state.definitions[name] for name in positioned]
            groups = [stack.enter_context(processor_group(instance.name, it, instance.timeout_s)) for it in definitions]
            if start_from is not None:
                reset = reset_groups(groups, start_from)
            elif savepoint is not None:
                restored_from(
                    groups[0],
                    savepoint,
                    accept_repeated_output=accept_repeated_output,
                    accept_other_partitions=accept_other_partitions,
                )
        _request(instance, state, [it for it in names if not _runs(state, it)], wait_s, reset)


@with_options
def restart(options: InstanceOptions, names: Names, wait: Wait = "2m") -> None:
    """Stop processors and start them again.

    A worker imports the code of a function once. After an upgrade of a function, stop the workers first.

    Exit code: 0 if they run or have completed, 1 if one has failed or does not run in time.
    """
    wait_s = parse_duration_ms(wait, option="--wait") / 1_000
    names = list(dict.fromkeys(names))
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, names, instance.name)
        _request(instance, state, names, wait_s)


def _request(
    instance: OpenInstance, state: InstanceState, names: Sequence[str], wait_s: float, reset: Sequence[str] = ()
) -> None:
    if not names:
        print_message("There is nothing to do.")
        return
    requests = {name: started(state, name) for name in names}
    try:
        instance.write(list(requests.values()))
    except StreamGroupsError as e:
        raise after_resets(reset, e) from (e if reset else None)
    if not wait_s:
        print_message("The request is written.")
        return

    def has_result(now: InstanceState) -> bool:
        same = [now.desired.get(name) == it for name, it in requests.items()]
        return all(same) and all(has_started(now, it) or failures(now, it) for it in names)

    now = instance.wait_for(has_result, wait_s, f"Not all of {', '.join(names)} run")
    failed = {name: errors[0] for name in names if (errors := failures(now, name))}
    for name in names:
        result = f"failed: {failed[name]}" if name in failed else "completed" if has_completed(now, name) else "running"
        print_message(f"{name}: {result}")
    if failed:
        raise QueryGivenUp(
            f"{len(failed)} of {len(names)} processors failed.", remedy="See: streamgroups processors describe."
        )


def _runs(state: InstanceState, name: str) -> bool:
    desired = state.desired.get(name)
    has_ended = has_completed(state, name) or failures(state, name)
    return desired is not None and desired.is_running and not has_ended


def _require_stopped(state: InstanceState, names: Sequence[str]) -> None:
    for name in names:
        if not is_stopped(state, name):
            raise GroupRejected(
                f"The processor '{name}' runs, and cannot start from another position; nothing was changed.",
                remedy=f"Stop it first: streamgroups processors stop {name}",
            )
