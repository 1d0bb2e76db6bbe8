"""The options ``--master`` and ``--conf`` of commands that start a Spark application, as those of ``spark-submit``.

``processors run``, ``worker run`` and ``doctor`` use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption

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
        InvalidOption: if one is no assignment. The error does not contain it, because it can be a secret.

    >>> spark_settings("local[2]", ["spark.cores.max=4"])
    {'spark.master': 'local[2]', 'spark.cores.max': '4'}
    >>> spark_settings(None, ["secret"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: A --conf option is not NAME=VALUE. Write it as --conf spark.cores.max=4.
    """
    settings = {} if master is None else {"spark.master": master}
    for assignment in assignments or ():
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise InvalidOption("A --conf option is not NAME=VALUE.", remedy="Write it as --conf spark.cores.max=4.")
        settings[name.strip()] = value
    return settings
