"""The options ``--master`` and ``--conf`` of commands that start a Spark application, as those of ``spark-submit``.

``processors run``, ``processors sample``, ``worker run`` and ``doctor`` use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups_cli.options import name_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master. Default: that of spark-submit and spark-defaults.conf.",
        show_default=False,
    ),
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.")]


def spark_settings(master: str | None, assignments: Iterable[str] | None) -> dict[str, str]:
    """Returns the settings of the application.

    Args:
        master: the value of ``--master``.
        assignments: the values of ``--conf``.

    Raises:
        InvalidOption: if one is no assignment.

    >>> spark_settings("local[2]", ["spark.cores.max=4"])
    {'spark.master': 'local[2]', 'spark.cores.max': '4'}
    """
    settings = {} if master is None else {"spark.master": master}
    return settings | dict(name_values("--conf", assignments, example="spark.cores.max=4"))


@contextmanager
def spark_session(name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts a Spark application in this process, and stops it at the end.

    Args:
        name: the name of the application.
        settings: its settings.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
