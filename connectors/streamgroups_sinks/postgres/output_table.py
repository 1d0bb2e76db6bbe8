"""Finds, checks and creates the output table.

Called by ``sink`` when a batch begins. ``judge`` is a function of the catalog rows, so all checks precede any change,
and one error contains all differences. Source: PostgreSQL's documentation, "System Catalogs"; "INSERT" (which unique
indexes ON CONFLICT infers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from streamgroups.errors import NotAuthorized, SinkRejected
from streamgroups_sinks.postgres.column_types import RecordColumn, fits
from streamgroups_sinks.postgres.table_names import TableName, lock_key


@dataclass(frozen=True, slots=True)
class RequiredTable:
    """The output of a sink.

    Args:
        table: the output table.
        columns: the columns of the records, without the delete marker.
        key: the columns of the key. Empty for an append.
        deletes: whether records can delete rows.
    """

    table: TableName
    columns: tuple[RecordColumn, ...]
    key: tuple[str, ...] = ()
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column of the table.

    Args:
        name: the name of the column.
        type: its SQL type, with its collation unless it is that of the type.
        type_name: its type in ``pg_type``. For a domain, the base type.
        category: the category of the type.
        not_null: whether NULL is rejected.
        has_default: whether a record may omit a column that rejects NULL.
        generated: whether only the server can write it.
        is_always_identity: whether an upsert can write it only as a part of the key: ``GENERATED ALWAYS AS IDENTITY``.
        base: its SQL type, with length and precision. For a domain, the base type.
        is_domain: whether its type is a domain.
        type_oid: the number of its type in the catalog.
        type_modifier: its ``atttypmod``: length, precision and fields of the type.
        parts: the SQL types of its parts, with length and precision. For domains, their base types.
    """

    name: str
    type: str
    type_name: str
    category: str
    not_null: bool = False
    has_default: bool = False
    generated: bool = False
    is_always_identity: bool = False
    base: str = ""
    is_domain: bool = False
    type_oid: int = 0
    type_modifier: int = -1
    parts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """The table in the catalog.

    Args:
        table: its name, with its schema.
        is_table: whether it is a table. Otherwise it is a view or another relation.
        columns: all its columns.
        unique: the columns of each unique index that ON CONFLICT can use.
        lacks: the missing privileges of this user.
        owner: the role that owns it.
        is_trusted: whether this user trusts that role; see :func:`check_owner`.
        takes_copies: whether a COPY of valid texts writes what an INSERT writes.
        oid: its number in the catalog.
    """

    table: TableName
    is_table: bool
    columns: tuple[ExistingColumn, ...]
    unique: tuple[frozenset[str], ...] = ()
    lacks: tuple[str, ...] = ()
    owner: str = ""
    is_trusted: bool = True
    takes_copies: bool = False
    oid: int = 0


def judge(found: ExistingTable, required: RequiredTable) -> None:
    """Rejects a table that does not match the records.

    Raises:
        SinkRejected: with all differences and their remedies, or if an untrusted role owns the table.
        NotAuthorized: with the missing privileges.
    """
    check_owner(required.table, f"Table {found.table}", found.owner, "table", is_trusted=found.is_trusted)
    if found.lacks:
        raise NotAuthorized(
            f"This user is not authorized to write to table {found.table}: {', '.join(found.lacks)} not granted.",
            remedy=f"GRANT {', '.join(found.lacks)} ON {found.table.quoted} TO the user.",
        )
    if not found.is_table:
        raise SinkRejected(f"{found.table} is not a table.", remedy="Write to a table, not to a view.")
    differences = list(_differences(found, required))
    if differences:
        raise SinkRejected(
            f"Table {found.table} does not match the records: {'; '.join((what for what, _ in differences))}.",
            remedy=" ".join(f"{remedy}." for _, remedy in differences),
        )


def _differences(found: ExistingTable, required: RequiredTable) -> Iterator[tuple[str, str]]:
    alter = f"ALTER TABLE {found.table.quoted}"
    there = {column.name: column for column in found.columns}
    for column in required.columns:
        name, target = sql.Identifier(column.name).as_string(), there.get(column.name)
        if target is None:
            add = f"{alter} ADD COLUMN {name} {column.type}"
            yield f"it has no column '{column.name}'", f"{add}, or leave the column out of the records"
        elif target.generated:
            yield f"only the server can write column '{column.name}'", f"Leave '{column.name}' out of the records"
        elif target.is_always_identity and required.key and column.name not in required.key:
            yield (
                f"column '{column.name}' is GENERATED ALWAYS AS IDENTITY, which an upsert cannot update",
                f"Leave '{column.name}' out of the records, or {alter} ALTER COLUMN {name} SET GENERATED BY DEFAULT",
            )
        elif not fits(column.kind, target.type_name, target.category, target.base, target.parts):
            yield (
                f"column '{column.name}' is {target.type}, but the records have a {column.kind.value}",
                f"Cast '{column.name}' in the query, or {alter} ALTER COLUMN {name} TYPE {column.type}",
            )
    written = {column.name for column in required.columns}
    for target in found.columns:
        if target.name not in written and target.not_null and not (target.has_default or target.generated):
            name = sql.Identifier(target.name).as_string()
            yield (
                f"column '{target.name}' is NOT NULL, but the records do not have it",
                f"Add '{target.name}' to the records, or {alter} ALTER COLUMN {name} SET DEFAULT a value",
            )
    if required.key and frozenset(required.key) not in found.unique:
        key = ", ".join(sql.Identifier(name).as_string() for name in required.key)
        yield f"it has no unique index on ({key})", f"CREATE UNIQUE INDEX ON {found.table.quoted} ({key})"


def find(connection: psycopg.Connection, required: RequiredTable) -> ExistingTable | None:
    """Finds the table. Returns ``None`` if it does not exist."""
    row = connection.execute(_FIND_TABLE, {"name": required.table.quoted}).fetchone()
    if row is None:
        return None
    oid, schema, name, is_table, rights, owner, is_trusted, takes_copies = row
    columns = connection.execute(_FIND_COLUMNS, [oid]).fetchall()
    unique = connection.execute(_FIND_UNIQUE, [oid]).fetchall()
    needed = ["INSERT"]
    # ON CONFLICT and DELETE read the key.
    needed += ["SELECT", "UPDATE"] if required.key else []
    needed += ["DELETE"] if required.deletes else []
    return ExistingTable(
        TableName(schema, name),
        is_table,
        tuple(ExistingColumn(*column) for column in columns),
        tuple(frozenset(names) for (names,) in unique),
        tuple(right for right in needed if right not in rights),
        owner,
        is_trusted,
        takes_copies,
        oid,
    )


def check_owner(required: TableName, what: str, owner: str, option: str, *, is_trusted: bool) -> None:
    """Rejects a table that another role may have created as a trap.

    Its triggers and defaults would run with the privileges of this user.

    A table is trusted if the user has named its schema. It is also trusted if its owner is this user, a role with this
    user as a member, or a superuser.

    Args:
        required: the name from the user.
        what: the beginning of the error.
        owner: the role that owns the table.
        option: the option with the name.
        is_trusted: the result of the database for the owner.

    Raises:
        SinkRejected: if the table is not trusted.
    """
    if required.schema is not None or is_trusted:
        return
    raise SinkRejected(
        f"{what} was found on the search path and belongs to role '{owner}', which is not this user.",
        remedy=f"If it is meant, name its schema: {option}='schema.{required.name}'. If not, drop it, and allow no other role to create tables there: "
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC.",
    )


def make(connection: psycopg.Connection, required: RequiredTable) -> ExistingTable:
    """Creates the table, unless another session has created it since.

    Raises:
        SinkRejected: if no schema for it exists.
        NotAuthorized: if this user may not create it.
    """
    schema = where_to_make(connection, required.table.schema, f"table {required.table}")
    table = TableName(schema, required.table.name)
    # Concurrent CREATE TABLE statements conflict in the catalog, even with IF NOT EXISTS.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("create", str(table))])
    if (found := find(connection, required)) is None:
        connection.execute(create_table(table, required.columns, required.key))
        found = find(connection, required)
    if found is None:
        raise SinkRejected(
            f"Table {table} was created, but cannot be found.", remedy="Name its schema: 'schema.table'."
        )
    return found


def where_to_make(connection: psycopg.Connection, schema: str | None, what: str) -> str:
    """Returns the schema for a new table: the named one, or the first on the search path.

    Raises:
        SinkRejected: if the schema does not exist.
        NotAuthorized: if this user may not create tables in it.
    """
    row = connection.execute(_FIND_SCHEMA, {"schema": schema}).fetchone()
    if row is None:
        why = f"schema '{schema}' does not exist" if schema else "the search path contains no schema"
        raise SinkRejected(f"Cannot make {what}: {why}.", remedy="Create the schema, or use another one.")
    found, may_create = row
    if not may_create:
        raise NotAuthorized(
            f"This user is not authorized to create tables in schema '{found}', which is the schema for {what}.",
            remedy=f"GRANT CREATE ON SCHEMA {sql.Identifier(found).as_string()} TO the user, or name another schema.",
        )
    return str(found)


def create_table(table: TableName, columns: Sequence[RecordColumn], key: Sequence[str]) -> sql.Composed:
    """Returns the statement that creates the table.

    >>> from streamgroups_sinks.postgres.column_types import Kind
    >>> id_ = RecordColumn("id", Kind.INTEGER, "bigint")
    >>> print(create_table(TableName("public", "flights"), [id_], ["id"]).as_string())
    CREATE TABLE "public"."flights" ("id" bigint, PRIMARY KEY ("id"))
    """
    parts: list[sql.Composable] = [
        sql.SQL("{} {}").format(sql.Identifier(column.name), type_sql(column.type)) for column in columns
    ]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    return sql.SQL("CREATE TABLE {} ({})").format(table.identifier, sql.SQL(", ").join(parts))


def type_sql(type_: str) -> sql.SQL:
    """Returns a type as SQL. It comes from ``column_types`` or from the catalog."""
    return sql.SQL(type_)


_FIND_SCHEMA = """
    SELECT nspname::text, has_schema_privilege(oid, 'CREATE')
    FROM pg_namespace WHERE nspname = coalesce(%(schema)s, current_schema())
"""
#: Whether the owner of the relation ``c`` is this user, a role whose privileges this user has, or a superuser. A
#: superuser has the privileges of all roles.
TRUSTED_OWNER = """(c.relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)
               OR (SELECT rolsuper FROM pg_roles WHERE oid = c.relowner)
               OR NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AND pg_has_role(c.relowner, 'USAGE'))"""
_FIND_TABLE = (
    """
    SELECT c.oid, n.nspname::text, c.relname::text, c.relkind IN ('r', 'p'),
           array_remove(ARRAY[
               CASE WHEN has_any_column_privilege(c.oid, 'INSERT') THEN 'INSERT' END,
               CASE WHEN has_any_column_privilege(c.oid, 'SELECT') THEN 'SELECT' END,
               CASE WHEN has_any_column_privilege(c.oid, 'UPDATE') THEN 'UPDATE' END,
               CASE WHEN has_table_privilege(c.oid, 'DELETE') THEN 'DELETE' END], NULL),
           pg_get_userbyid(c.relowner)::text, """
    + TRUSTED_OWNER
    # A server with another encoding rejects some characters, and one with smaller pages rejects the options of the stage.
    + """,
           current_setting('server_encoding') = 'UTF8' AND current_setting('block_size') = '8192'
           AND NOT row_security_active(c.oid)
           AND NOT EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass(%(name)s)
"""
)
_FIND_COLUMNS = """
    SELECT a.attname::text,
           format_type(a.atttypid, a.atttypmod) || coalesce(
               ' COLLATE ' || (SELECT quote_ident(cn.nspname) || '.' || quote_ident(co.collname)
                               FROM pg_collation co JOIN pg_namespace cn ON cn.oid = co.collnamespace
                               WHERE co.oid = a.attcollation AND a.attcollation <> t.typcollation), ''),
           b.typname::text, t.typcategory::text,
           a.attnotnull OR d.not_null,
           a.atthasdef OR a.attidentity <> '' OR d.has_default,
           a.attgenerated <> '', a.attidentity = 'a',
           format_type(b.oid, CASE WHEN t.typtype = 'd' THEN d.typmod ELSE a.atttypmod END), t.typtype = 'd',
           a.atttypid, a.atttypmod,
           ARRAY(
               WITH RECURSIVE part AS (
                   SELECT a.atttypid AS oid, a.atttypmod AS modifier, false AS is_inside
                   UNION ALL
                   SELECT n.oid, n.modifier, part.is_inside OR o.typtype <> 'd'
                   FROM part JOIN pg_type o ON o.oid = part.oid CROSS JOIN LATERAL (
                       SELECT o.typbasetype, o.typtypmod WHERE o.typtype = 'd'
                       UNION ALL
                       SELECT o.typelem, part.modifier WHERE o.typtype = 'b' AND o.typcategory = 'A'
                       UNION ALL
                       SELECT f.atttypid, f.atttypmod FROM pg_attribute f
                       WHERE o.typtype = 'c' AND f.attrelid = o.typrelid AND f.attnum > 0 AND NOT f.attisdropped
                       UNION ALL
                       SELECT r.rngsubtype, -1 FROM pg_range r WHERE r.rngtypid = o.oid
                   ) AS n (oid, modifier)
               )
               SELECT format_type(part.oid, part.modifier) FROM part JOIN pg_type o ON o.oid = part.oid
               WHERE part.is_inside AND o.typtype = 'b' AND o.typcategory <> 'A'
           )
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    CROSS JOIN LATERAL (
        -- A domain can be based on another one.
        WITH RECURSIVE base AS (
            SELECT t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typnotnull, t.typdefault
            UNION ALL
            SELECT n.oid, n.typtype, n.typbasetype, n.typtypmod, n.typnotnull, n.typdefault
            FROM base JOIN pg_type n ON n.oid = base.typbasetype WHERE base.typtype = 'd'
        )
        SELECT max(oid::int8) FILTER (WHERE typtype <> 'd')::oid AS oid, max(typtypmod) AS typmod,
               bool_or(typnotnull) AS not_null, bool_or(typdefault IS NOT NULL) AS has_default FROM base
    ) AS d
    JOIN pg_type b ON b.oid = d.oid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_FIND_UNIQUE = """
    SELECT array_agg(a.attname::text)
    FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
          AND NOT 0 = ANY (i.indkey::int2[])
    GROUP BY i.indexrelid
"""
