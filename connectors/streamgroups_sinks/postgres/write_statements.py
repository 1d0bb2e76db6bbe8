"""Decides how many statements write a batch, so that its result is that of its records one by one.

Called by ``sink`` when a batch begins. One statement for the whole batch is the fastest way. It writes only the last row of
each key, and no constraint sees the others. So a table whose constraints, indexes or triggers can see them needs more
statements. Source: PostgreSQL's documentation, "Constraints", "CREATE TABLE" (deferrable constraints are checked at the end
of a statement), "pg_constraint", "pg_index", "pg_trigger".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from streamgroups_sinks.postgres.output_table import ExistingColumn
from streamgroups_sinks.postgres.stages import Way

#: Types with one representation of each value: equal keys are identical. Numbers such as 1.0 and 1.00 are not.
_IDENTICAL = frozenset(
    ["bool", "int2", "int4", "int8", "text", "varchar", "bytea", "uuid", "date", "time", "timestamp", "timestamptz"]
)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a table, besides the unique index on the key.

    Args:
        refers_to_itself: whether foreign keys lead from the table back to it. A statement can contain rows that refer to
            its later rows.
        judges_statements: whether the end of a statement decides about updated and deleted rows: a deferrable UNIQUE or
            EXCLUDE constraint, or a foreign key to other columns than the key.
        others: whether anything else can reject a row or sees it: indexes that are unique or have expressions, foreign
            keys, generated columns, triggers, a key with several representations of a value.
        n_checks: the number of CHECK constraints.
    """

    refers_to_itself: bool
    judges_statements: bool
    others: bool
    n_checks: int


def choose(found: Constraints, *, is_upsert: bool, n_checked: int) -> Way:
    """Returns the fastest way whose result does not depend on the batches.

    Args:
        found: the constraints of the table.
        is_upsert: whether the sink writes by key. An append neither updates nor deletes, and writes each row.
        n_checked: the number of CHECK constraints that the stage has.

    >>> choose(Constraints(False, False, True, 0), is_upsert=True, n_checked=0)
    <Way.RUNS: 'statements without repeated keys'>
    """
    if found.refers_to_itself or (is_upsert and found.judges_statements):
        return Way.ROWS
    if is_upsert and (found.others or n_checked < found.n_checks):
        return Way.RUNS
    return Way.TOGETHER


def find_constraints(
    connection: psycopg.Connection, oid: int, columns: Sequence[ExistingColumn], key: Sequence[str]
) -> Constraints:
    """Finds the constraints of a table.

    Args:
        connection: a connection.
        oid: the table.
        columns: its columns.
        key: the columns of the key. Empty for an append.
    """
    row = connection.execute(_FIND, {"table": oid, "key": list(key)}).fetchone()
    assert row is not None, "the query has no condition"
    refers_to_itself, judges_statements, others, n_checks = row
    keys = [column for column in columns if column.name in key]
    return Constraints(refers_to_itself, judges_statements, others or not all(map(_is_identical, keys)), n_checks)


def _is_identical(column: ExistingColumn) -> bool:
    # The length of a fixed string or number is that of each value.
    has_length = column.type.startswith(("character(", "numeric("))
    return column.type_name in _IDENTICAL or column.category == "E" or has_length


#: Bit 1 of ``tgtype`` is that of a trigger for each row. Foreign keys of partitions have a parent constraint.
_FIND = """
    WITH RECURSIVE tree AS (
        SELECT %(table)s::oid AS id UNION SELECT relid::oid FROM pg_partition_tree(%(table)s::oid::regclass)
    ), reached AS (
        SELECT confrelid AS id FROM pg_constraint WHERE contype = 'f' AND conrelid IN (SELECT id FROM tree)
        UNION
        SELECT k.confrelid FROM pg_constraint k JOIN reached r ON k.conrelid = r.id WHERE k.contype = 'f'
    ), key AS (
        SELECT coalesce(array_agg(attname::text ORDER BY attname), '{}') AS names
        FROM unnest(%(key)s::text[]) AS attname
    )
    SELECT EXISTS (SELECT FROM reached JOIN tree USING (id)),
           EXISTS (SELECT FROM pg_constraint WHERE conrelid IN (SELECT id FROM tree)
                      AND condeferrable AND contype IN ('p', 'u', 'x'))
           OR EXISTS (SELECT FROM pg_constraint k WHERE k.contype = 'f' AND k.confrelid IN (SELECT id FROM tree)
                      AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
                           WHERE a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey)) <> (SELECT names FROM key)),
           EXISTS (SELECT FROM pg_constraint WHERE contype = 'f'
                   AND (conrelid IN (SELECT id FROM tree) OR confrelid IN (SELECT id FROM tree)))
           OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid IN (SELECT id FROM tree)
                      AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR i.indisexclusion
                           OR i.indisunique
                              AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
                                   WHERE a.attrelid = i.indrelid
                                         AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
                                  <> (SELECT names FROM key)))
           OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = %(table)s AND attgenerated = 's')
           OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid IN (SELECT id FROM tree) AND NOT tgisinternal
                      AND tgtype & 1 = 1 AND tgenabled <> 'D')
           OR EXISTS (SELECT FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
                      WHERE a.attrelid = %(table)s AND a.attname = ANY (%(key)s) AND NOT c.collisdeterministic),
           (SELECT count(*) FROM pg_constraint WHERE conrelid IN (SELECT id FROM tree) AND contype = 'c'
            AND (conrelid = %(table)s OR conislocal AND coninhcount = 0)
            AND pg_get_constraintdef(oid) NOT LIKE '%% NOT ENFORCED')
"""
