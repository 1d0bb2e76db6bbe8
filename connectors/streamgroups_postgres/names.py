"""Names of tables, as users write them and as SQL does.

Used by all of ``streamgroups_postgres``. A name is taken letter by letter and quoted in SQL: ``Flights`` and ``flights`` are two
tables. Source: PostgreSQL's documentation, "Identifiers and Key Words".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from psycopg import sql

from streamgroups.errors import InvalidOption

#: PostgreSQL cuts longer names off (``NAMEDATALEN``), and would then look for another one than was meant.
MAX_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class TableName:
    """A table.

    Args:
        schema: its schema; ``None`` for the first on the search path that has it.
        name: within the schema.

    >>> TableName.parse("airport.flights", "table")
    TableName(schema='airport', name='flights')
    >>> print(TableName.parse("flights", "table").quoted)
    "flights"
    """

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str, option: str) -> TableName:
        """Reads ``table`` or ``schema.table``.

        Raises:
            InvalidOption: if it is neither.
        """
        *schema, name = text.split(".")
        if len(schema) > 1 or not all([*schema, name]) or '"' in text or "\0" in text:
            raise InvalidOption(
                f"Option '{option}' is {text!r}, which is not a table name.",
                remedy="Write 'table' or 'schema.table', without quotes; names are case-sensitive.",
            )
        for part in (*schema, name):
            check_length(part, f"Option '{option}'")
        return cls(schema[0] if schema else None, name)

    @property
    def identifier(self) -> sql.Identifier:
        """In SQL."""
        return sql.Identifier(*filter(None, [self.schema, self.name]))

    @property
    def quoted(self) -> str:
        """As text for ``to_regclass``."""
        return self.identifier.as_string()

    def __str__(self) -> str:
        return ".".join(filter(None, [self.schema, self.name]))


def check_length(name: str, what: str) -> None:
    """Refuses what PostgreSQL would cut off.

    Raises:
        InvalidOption: if the name is too long.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidOption(
            f"{what} has a name of {len(name.encode())} bytes: {name!r}.",
            remedy=f"PostgreSQL's names have at most {MAX_NAME_BYTES} bytes.",
        )


def lock_key(*what: str | int) -> int:
    """The key of an advisory lock, the same in every process and version.

    >>> lock_key("ledger", "billing", "flights", 0) == lock_key("ledger", "billing", "flights", 0)
    True
    """
    digest = hashlib.blake2b(json.dumps(["streamgroups", *what]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
