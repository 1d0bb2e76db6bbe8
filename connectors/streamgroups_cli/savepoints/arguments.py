"""The arguments that several commands about savepoints share."""

from __future__ import annotations

from typing import Annotated

import typer

Location = Annotated[str, typer.Argument(help="The location of savepoints: a path or URI.")]
SavepointId = Annotated[str, typer.Argument(metavar="ID", help="The id of a savepoint.", show_default=False)]
