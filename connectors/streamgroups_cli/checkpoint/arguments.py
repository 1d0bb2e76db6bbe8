"""The arguments that several commands about checkpoints share."""

from __future__ import annotations

from typing import Annotated

import typer

Location = Annotated[
    str,
    typer.Argument(metavar="DIR", help="The checkpointLocation of a query: a path, or a URI such as s3://bucket/dir."),
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", metavar="N", help="A batch; default: the last committed one.", min=0)
]
