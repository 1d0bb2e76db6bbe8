"""Names of tables, and their quoting in SQL.

Used by all modules of ``streamgroups_sinks.postgres``. A name is quoted and case-sensitive: ``Flights`` and ``flights`` are
two tables. Source: PostgreSQL's documentation, "Identifiers and Key Words".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from psycopg import sql

from streamgroups.errors import InvalidOption

#: PostgreSQL truncates longer names (``NAMEDATALEN``), and would then use another table.
MAX_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table.

    Args:
        schema: its schema. ``None``: the first schema on the search path that contains it.
        name: its name in the schema.

    >>> TableName.parse("airport.flights", "table")
    TableName(schema='airport', name='flights')
    >>> print(TableName.parse("flights", "table").quoted)
    "flights"
    """

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str, option: str) -> TableName:
        """Parses ``table`` or ``schema.table``.

        Raises:
            InvalidOption: if the text has another format.
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
        """The name as an SQL identifier."""
        return sql.Identifier(*filter(None, [self.schema, self.name]))

    @property
    def quoted(self) -> str:
        """The quoted name, as text for ``to_regclass``."""
        return self.identifier.as_string()

    def __str__(self) -> str:
        return ".".join(filter(None, [self.schema, self.name]))


def check_length(name: str, what: str) -> None:
    """Rejects a name that PostgreSQL would truncate.

    Raises:
        InvalidOption: if the name is too long.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidOption(
            f"{what} has a name of {len(name.encode())} bytes: {name!r}.",
            remedy=f"PostgreSQL's names have at most {MAX_NAME_BYTES} bytes.",
        )


def lock_key(*what: str | int) -> int:
    """Returns the key of an advisory lock, which is the same in every process and version.

    >>> lock_key("ledger", "billing", "flights", 0) == lock_key("ledger", "billing", "flights", 0)
    True
    """
    digest = hashlib.blake2b(json.dumps(["streamgroups", *what]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
