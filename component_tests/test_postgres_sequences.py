"""X2, P4: a random sequence of records has one result, however batches and tasks cut it.

The oracle is a plain program: it writes the same records one by one, each in a transaction of its own, and skips those
that the table rejects. Tables have random constraints, types and names.
"""

from __future__ import annotations

import decimal
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from psycopg import sql

from component_tests.postgres_process import GROUP, P0, open_at, sink, token
from streamgroups.errors import RecordRejected
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.staging import RejectedRow
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_spark.sinks.letters.bad_record_search import write_isolated
from unit_tests.examples import examples

PLENTY = 10_000
_NAMES = st.sampled_from(
    [
        "load %",
        "%s",
        "%(x)s",
        "%%",
        'a"b',
        "é 日",
        "c0",
        "c1",
        "attempt",
        "row_number",
        "last",
        "excluded",
        "x;--",
        "{}",
        "\\",
        "'",
        "task",
        "place",
    ]
)


@dataclass(frozen=True)
class Column:
    """A column of the table, with its values in the records, in Python and in Arrow."""

    type: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    constraint: str = ""


_ALWAYS = " GENERATED ALWAYS AS IDENTITY"
_SMALL = st.integers(0, 4)
_WORDS = st.sampled_from(["a", "b", "B", "ä", "'", "%s", "a ", "\\", "", "日本"])

_KEYS = {
    "int": Column("int8", pa.int64(), _SMALL),
    "identity": Column("int8" + _ALWAYS, pa.int64(), _SMALL),
    "text": Column("text", pa.string(), _WORDS),
    "char": Column("char(2)", pa.string(), st.sampled_from(["a", "b", "c ", "c"])),
    "numeric": Column(
        "numeric", pa.decimal128(5, 2), st.integers(0, 3).map(lambda n: decimal.Decimal(50 * n).scaleb(-2))
    ),
    "float": Column("float8", pa.float64(), st.sampled_from([0.0, -0.0, 1.0])),
    "domain": Column("outer_number", pa.int64(), _SMALL),
}
_OTHERS: dict[str, list[Column]] = {
    "unique": [
        Column("int4", pa.int32(), st.none() | _SMALL, f"{unique} ({{}}) {when}")
        for unique in ("UNIQUE",)
        for when in ("", "DEFERRABLE INITIALLY DEFERRED", "DEFERRABLE INITIALLY IMMEDIATE")
    ],
    "exclude": [
        Column(
            "int4",
            pa.int32(),
            st.none() | st.integers(0, 9),
            f"EXCLUDE USING gist (int4range({{}}, {{}} + 2) WITH &&) {when}",
        )
        for when in ("", "DEFERRABLE INITIALLY DEFERRED")
    ],
    "parent": [
        Column("int4", pa.int32(), st.none() | _SMALL, f"FOREIGN KEY ({{}}) REFERENCES parents {when}")
        for when in ("", "DEFERRABLE INITIALLY DEFERRED")
    ],
    "self": [
        Column("KEY", pa.null(), st.none(), f"FOREIGN KEY ({{}}) REFERENCES load {action}")
        for action in (
            "",
            "ON DELETE CASCADE",
            "ON DELETE SET NULL",
            "ON DELETE RESTRICT DEFERRABLE",
            "DEFERRABLE INITIALLY DEFERRED",
        )
    ],
    "check": [
        Column("int4", pa.int32(), st.none() | _SMALL, "CHECK ({} <> 3)"),
        Column("int4", pa.int32(), st.none() | _SMALL, "CHECK ({} + later <> 13)"),
    ],
    "not null": [Column("text NOT NULL", pa.string(), st.none() | _WORDS)],
    "domain": [
        Column("outer_number", pa.int32(), st.none() | _SMALL),
        Column("numeric(2,1)", pa.decimal128(5, 1), st.none() | st.sampled_from([9, 10]).map(decimal.Decimal)),
    ],
    # An INSERT drops spaces that exceed the length. The sink rejects such a text (docs/postgres.rst).
    "length": [Column("varchar(1)", pa.string(), st.none() | _WORDS.filter(lambda it: not it.endswith(" ")))],
    "default": [Column("int4 DEFAULT 7", pa.int64(), st.none() | st.sampled_from([1, 2**31 - 1, 2**31]))],
    "json": [Column("jsonb", pa.list_(pa.string()), st.none() | st.lists(_WORDS, max_size=2))],
}
#: Statements after the table. A generated column and an index can reject a row too.
_EXTRAS = {
    "none": "SELECT",
    "generated": "ALTER TABLE load ADD made int4 GENERATED ALWAYS AS (12 / {}) STORED",
    "partial": "CREATE UNIQUE INDEX ON load ({}) WHERE {} > 1",
    "expression": "CREATE UNIQUE INDEX ON load (({} % 3))",
    "index": "CREATE INDEX ON load ((12 / {}))",
    "children": "CREATE TABLE children (of KEY REFERENCES load ON DELETE CASCADE)",
    "trigger": "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON load FOR EACH ROW EXECUTE FUNCTION count_changes()",
}
_PREPARED = """
CREATE DOMAIN inner_number AS int4 CHECK (VALUE < 4);
CREATE DOMAIN outer_number AS inner_number CHECK (VALUE > 0);
CREATE TABLE parents (id int4 PRIMARY KEY);
INSERT INTO parents VALUES (1), (2);
CREATE TABLE changes (what text, n bigint);
CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
  'BEGIN INSERT INTO changes VALUES (tg_op, 1); RETURN NULL; END';
"""


@dataclass(frozen=True)
class Case:
    """A table, and records for it. A record has the number ``i``, its values by column, and whether it deletes."""

    is_upsert: bool
    names: list[str]
    columns: list[Column]
    statements: list[str]
    records: list[tuple[list[Any], bool]]
    #: The sizes of the tasks of each batch.
    batches: list[list[int]]
    is_first_batch_empty: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    key = _KEYS[draw(st.sampled_from(sorted(_KEYS)))]
    kinds = draw(st.lists(st.sampled_from(sorted(_OTHERS)), max_size=3, unique=True))
    others = [draw(st.sampled_from(_OTHERS[kind])) for kind in kinds]
    key_type = key.type.removesuffix(_ALWAYS)
    others = [
        Column(key_type, key.arrow, st.none() | key.values, it.constraint) if it.type == "KEY" else it for it in others
    ]
    # Each table has a number that expressions can use.
    columns = [key, Column("int8", pa.int64(), st.nothing()), Column("int4", pa.int32(), st.none() | _SMALL), *others]
    names = draw(st.lists(_NAMES, min_size=len(columns), max_size=len(columns), unique=True))
    quoted = [sql.Identifier(name).as_string() for name in names]
    parts = [f"{name} {column.type}" for name, column in zip(quoted, columns, strict=True)]
    is_upsert = draw(st.sampled_from([True, True, True, False]))
    has_self = any("REFERENCES load" in it.constraint for it in others)
    parts += ["later int4 DEFAULT 10", "remark text DEFAULT 'new' NOT NULL"]
    parts += [f"PRIMARY KEY ({quoted[0]})"] if is_upsert or has_self else []
    parts += [
        f"CONSTRAINT {sql.Identifier(f'{name} %s').as_string()} {it.constraint.replace('{}', sql.Identifier(name).as_string())}"
        for name, it in zip(names, columns, strict=True)
        if it.constraint
    ]
    extra = draw(st.sampled_from(sorted(_EXTRAS)))
    if extra == "children" and not (is_upsert or has_self):
        extra = "none"
    statement = _EXTRAS[extra].replace("{}", quoted[2]).replace("KEY", key_type)
    record = st.tuples(*(it.values if i != 1 else st.just(None) for i, it in enumerate(columns)))
    marked = st.booleans() if is_upsert else st.just(False)
    records = draw(st.lists(st.tuples(record.map(list), marked), min_size=1, max_size=12))
    for i, (values, _) in enumerate(records):
        values[1] = i
    tasks = st.lists(st.integers(0, 6), min_size=1, max_size=3)
    # A batch without records may come first. Later ones would differ in nothing and cost as much as a full batch.
    sizes = draw(st.lists(tasks.filter(any), min_size=1, max_size=3))
    is_first_empty = draw(st.booleans())
    return Case(
        is_upsert,
        names,
        columns,
        [f"CREATE TABLE load ({', '.join(parts)})", statement],
        records,
        sizes,
        is_first_empty,
    )


def create(conninfo: str, schema: str, case: Case) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        quoted = sql.Identifier(schema)
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(quoted))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(quoted))
        connection.execute(sql.SQL("SET search_path = {}").format(quoted))
        for statement in (_PREPARED, *case.statements):
            connection.execute(statement)


def one_by_one(conninfo: str, schema: str, case: Case) -> list[int]:
    """Writes the records one by one. Returns the numbers of the rejected ones."""
    rejected = []
    with psycopg.connect(conninfo, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        names = [sql.Identifier(name).as_string() for name in case.names]
        values = ", ".join(f"${i + 1}" for i in range(len(names)))
        key_type = case.columns[0].type.removesuffix(_ALWAYS)
        write = f"INSERT INTO load ({', '.join(names)}) OVERRIDING SYSTEM VALUE VALUES ({values})"
        if case.is_upsert:
            updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in names[1:])
            write += f" ON CONFLICT ({names[0]}) DO UPDATE SET {updates}"
        for record, is_deleted in case.records:
            given = [json.dumps(it) if isinstance(it, list) else it for it in record]
            try:
                if is_deleted:
                    connection.execute(f"DELETE FROM load WHERE {names[0]} = $1::{key_type}", given[:1])
                else:
                    connection.execute(write, given)
            except (psycopg.DataError, psycopg.IntegrityError):
                rejected.append(record[1])
    return rejected


def batches_of(case: Case) -> Iterator[list[list[tuple[list[Any], bool]]]]:
    if case.is_first_batch_empty:
        yield [[]]
    rest = case.records
    for sizes in itertools.cycle(case.batches):
        tasks = []
        for size in sizes:
            tasks.append(rest[:size])
            rest = rest[size:]
        yield tasks
        if not rest:
            return


def in_batches(conninfo: str, schema: str, case: Case) -> list[int]:
    """Writes the records in batches. Returns the numbers of the rejected ones."""
    settings: dict[str, Any] = {"table": f"{schema}.load", "isolate_violations": True}
    if case.is_upsert:
        settings |= {"mode": "upsert", "key": (case.names[0],), "delete_marker": "gone"}
    to, rejected = sink(conninfo, **settings), list[int]()
    open_at(to, {P0: 0})
    for tasks in batches_of(case):
        rejected += write_batch(to, case, tasks)
    return rejected


def write_batch(to: PostgresSink, case: Case, tasks: Sequence[Sequence[tuple[list[Any], bool]]]) -> list[int]:
    arrays = [
        [
            *(pa.array([record[i] for record, _ in task], it.arrow) for i, it in enumerate(case.columns)),
            *([pa.array([marked for _, marked in task], pa.bool_())] if case.is_upsert else []),
        ]
        for task in tasks
    ]
    names = [*case.names, *(["gone"] if case.is_upsert else [])]
    batches = [pa.record_batch(it, names=names) for it in arrays]
    begun = to.begin(batches[0].schema, token())
    rejected: list[int] = []

    def reject(failure: pa.Array) -> None:
        (value,) = failure.to_pylist()
        rejected.append(json.loads(dict(value["details"])["record"])[case.names[1]])

    staged = [
        it
        for attempt, batch in enumerate(batches)
        for it in write_isolated(lambda rows, n: to.write(begun, rows, n), iter([batch]), attempt, reject)
    ]
    with to.open(GROUP) as ledger:
        at = ledger.positions([P0])[P0]
        ranges = {GROUP: [OffsetRange(P0, at, at + 1)]}
        try:
            commit_batch(ledger, ranges, staged)
        except RecordRejected:
            found = to.isolate(staged, PLENTY)
            rejected += [_number(row, case) for row in found.rejected]
            commit_batch(ledger, ranges, found.staged)
    to.discard(begun)
    return rejected


def _number(row: RejectedRow, case: Case) -> int:
    values = row.values if row.record is None else row.record.to_pylist()[0]
    return int(values[case.names[1]])


def content(conninfo: str, schema: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        found = connection.execute("SELECT load::text FROM load UNION ALL SELECT changes::text FROM changes ORDER BY 1")
        return found.fetchall()


@settings(
    max_examples=examples(6),
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(case=cases(), schema=st.sampled_from(["batches", "load %", "é {}", "%s"]))
def test_X2_the_result_does_not_depend_on_the_batches(postgres: str, case: Case, schema: str) -> None:
    create(postgres, "plain", case)
    create(postgres, schema, case)
    expected = one_by_one(postgres, "plain", case)
    note(f"{case.statements} {content(postgres, 'plain')} {expected}")
    rejected = in_batches(postgres, schema, case)
    assert content(postgres, schema) == content(postgres, "plain")
    assert sorted(rejected) == expected
