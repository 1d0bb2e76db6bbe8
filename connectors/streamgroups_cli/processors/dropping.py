"""``streamgroups processors drop``: removes stopped processors from an instance. Source: SEMANTICS P1, P2."""

from __future__ import annotations

from streamgroups.instances.entries import group_of
from streamgroups.instances.requests import dropped
from streamgroups_cli.instance_log import InstanceOptions, open_instance, require_defined
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.processors.starting import Names


@with_options
def drop(
    options: InstanceOptions,
    names: Names,
    execute: ExecuteOption = False,
) -> None:
    """Drop stopped processors. Their groups and states stay: 'streamgroups groups delete' deletes a group.

    Exit code: 0, or 3 if a processor runs.
    """
    names = list(dict.fromkeys(names))
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, names, instance.name)
        entries = [entry for name in names for entry in dropped(state, name)]
        for name in names:
            print_message(f"Processor '{name}' with group '{group_of(instance.name, name)}'.")
        if not execute:
            print_message("Nothing was changed: this is the plan. --execute applies it.")
            return
        instance.write(entries)
        print_message(f"{len(names)} processor{'' if len(names) == 1 else 's'} dropped.")
