"""``streamgroups cursors create``: creates a cursor of a partition, or an instance of a group and its first cursor.

``streamgroups_cli.cursors`` imports it. Source: SEMANTICS G1, G2, G16.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.cursors.argument_checks import check_instance
from streamgroups.cursors.starting_position import CursorType, position_of
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups_cli.connection import Connect
from streamgroups_cli.cursors import instance_process, opening
from streamgroups_cli.cursors.cursor_errors import command_words
from streamgroups_cli.cursors.paths import KeyOption, signing_key
from streamgroups_cli.cursors.reading import print_cursor
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption


@with_options
def create(
    connect: Connect,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The topic.")],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="The consumer group; created if it does not exist."),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", "-i", metavar="NAME", help="Instance name, unique among the members of the group."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="P", help="Read this partition, instead of a group."),
    ] = None,
    type_: Annotated[
        CursorType,
        typer.Option(
            "--type",
            case_sensitive=False,
            metavar="TYPE",
            help="Starting position: TRIM_HORIZON (the earliest message), AT_TIME or LATEST; for a partition also AT_OFFSET or AFTER_OFFSET. "
            "A group with committed offsets continues there, with any type.",
        ),
    ] = CursorType.TRIM_HORIZON,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For AT_TIME: ISO 8601, or milliseconds since the epoch."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="For AT_OFFSET and AFTER_OFFSET, of a partition.")
    ] = None,
    commit_on_get: Annotated[
        bool | None,
        typer.Option(
            "--commit-on-get/--no-commit-on-get",
            help="Commit the messages of the previous get with each get.",
            show_default="commit-on-get",
        ),
    ] = None,
    lease_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Maximum time between requests before the instance leaves its group.",
            show_default="30s",
        ),
    ] = None,
    signing_key_file: KeyOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Create a cursor of a partition, or an instance of a group, and print its cursor.

    An instance is a background process, which runs until the instance leaves or its lease expires.
    """
    with command_words():
        of_group = _is_for_a_group(group, instance, partition)
        position_of(type_, time=time, offset=offset, of_group=of_group)
        lease_timeout_ms = parse_duration_ms(lease_timeout or "30s", option="--lease-timeout")
        if of_group:
            check_instance(group or "", instance or "", lease_timeout_ms)
        elif (lease_timeout, commit_on_get) != (None, None):
            raise InvalidOption(
                "--lease-timeout and --commit-on-get require an instance of a group.",
                remedy="Omit them, or set --group and --instance.",
            )
        key = signing_key(signing_key_file)
        with connect() as cluster:
            servers, settings = opening.settings_of(cluster.config)
            if partition is not None:
                with opening.open_cursors(servers, settings, key) as cursors:
                    cursor = cursors.create_cursor(stream, partition, type_, offset=offset, time=time)
            else:
                instance_request = {
                    "stream": stream,
                    "group_name": group,
                    "instance_name": instance,
                    "type": type_.value,
                    "time": time,
                    "commit_on_get": commit_on_get is not False,
                    "lease_timeout_ms": lease_timeout_ms,
                }
                cursor = instance_process.launch(instance_process.Job(servers, settings, key.hex(), instance_request))
    print_cursor(cursor, output)


def _is_for_a_group(group: str | None, instance: str | None, partition: int | None) -> bool:
    given = (group is not None, instance is not None, partition is not None)
    if given not in ((True, True, False), (False, False, True)):
        raise InvalidOption(
            "A cursor requires an instance of a group, or a partition.",
            remedy="Set --group and --instance, or --partition.",
        )
    return partition is None
