"""``streamgroups groups timeline``: writes the ownership timeline of a group, from the files of ``historyDir``.

It needs no cluster. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS G11, G12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups_admin.reports.clocks import Clock
from streamgroups_cli.output import page_file, print_message


def timeline(
    history_dir: Annotated[
        Path, typer.Argument(metavar="HISTORY_DIR", help="Directory of the option historyDir.", show_default=False)
    ],
    file: Annotated[
        Path,
        typer.Option("--file", metavar="FILE", help="A file .html or .svg, which is replaced.", show_default=False),
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group, if the directory contains several.")
    ] = None,
    clock: Annotated[Clock, typer.Option("--clock", help="Times by the clock, or since the first event.")] = Clock.UTC,
) -> None:
    """Write the owners of each partition over time as an HTML page or an image."""
    suffix = file.suffix.lower()
    if suffix not in (".html", ".svg"):
        raise InvalidOption(
            f"Option '--file' is '{file}', whose format is unknown.", remedy="Use a name that ends with .html or .svg."
        )
    from streamgroups_admin.reports.ownership_timeline import ownership_timeline

    found = ownership_timeline(history_dir, group_id=group, clock=clock.value)
    with page_file(file):
        (found.write_html if suffix == ".html" else found.write_svg)(file)
    print_message(f"{found}. The timeline is in {file}")
