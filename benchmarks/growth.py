"""How a figure grows with a size: the rows and the tables of ``scale`` and ``simulated_scale``. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.tables import number

#: Above this exponent a growth is worse than linear; the rest is noise and memory.
MAX_EXPONENT = 1.25
_HEADER = ("figure", "unit", "of", "sizes", "values", "exponent of the last step")


@dataclass(frozen=True, slots=True)
class Growth:
    """How a figure grows.

    Args:
        what: the figure.
        unit: its unit.
        of: what grows.
        sizes: the sizes, at least two.
        values: the figure at each size.
    """

    what: str
    unit: str
    of: str
    sizes: Sequence[int]
    values: Sequence[float]

    @property
    def exponent(self) -> float:
        """The exponent of the last step: 1 is linear, 0 is constant.

        >>> Growth("start", "s", "partitions", (10, 100), (0.5, 5.0)).exponent
        1.0
        """
        (before, after), (first, last) = self.sizes[-2:], self.values[-2:]
        if first <= 0 or last <= 0:
            return 0.0
        return round(math.log(last / first) / math.log(after / before), 2)

    @property
    def is_worse_than_linear(self) -> bool:
        """Whether it grows faster than the size.

        >>> Growth("start", "s", "partitions", (10, 100), (0.5, 50.0)).is_worse_than_linear
        True
        """
        return self.exponent > MAX_EXPONENT


def table(found: Sequence[Growth]) -> Table:
    """The table for a terminal."""
    shown = Table(*_HEADER)
    for it in found:
        shown.add_row(*_cells(it))
    return shown


def rst(found: Sequence[Growth], title: str, command: str) -> str:
    """The table for the documentation.

    Args:
        found: the rows.
        title: the title of the table.
        command: the command that makes it.

    >>> print(rst([Growth("start", "s", "partitions", (10, 100), (0.5, 5.0))], "Title", "python -m a").splitlines()[-1])
         - 1.00
    """
    lines = [f".. Made by {command}; not to be edited.", "", title, "=" * len(title), ""]
    lines += [".. list-table::", "   :header-rows: 1", "   :widths: 34 8 16 20 20 14", ""]
    for cells in (_HEADER, *map(_cells, found)):
        lines += [f"   {'* -' if i == 0 else '  -'} {text}" for i, text in enumerate(cells)]
    return "\n".join(lines) + "\n"


def _cells(it: Growth) -> tuple[str, ...]:
    mark = " (worse than linear)" if it.is_worse_than_linear else ""
    sizes, values = ", ".join(f"{n:,}" for n in it.sizes), ", ".join(map(number, it.values))
    return it.what, it.unit, it.of, sizes, values, f"{it.exponent:.2f}{mark}"
