"""The option that limits how much is read to count records, for commands that compute the lag.

``groups describe``, ``groups watch`` and ``metrics`` use it. Source: SEMANTICS O3, G13.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.monitoring.snapshots import COUNT_BYTES

_MIB = 1 << 20
#: The default limit of one of several polls.
POLL_MIB = 4
DESCRIBE_MIB = COUNT_BYTES // _MIB

CountLimitOption = Annotated[
    int,
    typer.Option(
        "--count-limit",
        metavar="MIB",
        min=0,
        help="Maximum MiB to read to compute the exact lag, without transaction markers, gaps and aborted records. "
        "A greater lag is an upper bound, marked <=. 0 reads nothing.",
    ),
]


def count_bytes(limit_mib: int) -> int:
    """Returns the value of :data:`CountLimitOption` in bytes.

    >>> count_bytes(4)
    4194304
    """
    return limit_mib * _MIB
