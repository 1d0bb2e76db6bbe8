"""``streamgroups precompile``: adds bytecode to the ``pyspark.zip`` of a Spark home.

Part of the command line (``streamgroups_cli``); ``streamgroups_spark.ops.pyspark_zip`` explains why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups_cli.options import with_options
from streamgroups_cli.output import say


@with_options
def precompile(
    spark_home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Spark's directory. Default: SPARK_HOME, or else the installed PySpark.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add bytecode to Spark's pyspark.zip, so that its Python processes start sooner.

    Run it with the Python of Spark's workers, on each machine or in the image, as the owner of the file.
    """
    from streamgroups_spark.ops.pyspark_zip import add_bytecode, has_bytecode, pyspark_zip

    file = pyspark_zip(spark_home)
    if file is None:
        raise InvalidOption(
            f"{spark_home or 'The Spark home'} contains no file python/lib/pyspark.zip.",
            remedy="Set --spark-home to Spark's directory. Without this file nothing needs to be compiled.",
        )
    if has_bytecode(file):
        say(f"{file} contains the bytecode of this Python.")
        return
    say(f"Added the bytecode of {add_bytecode(file)} modules to {file}.")
