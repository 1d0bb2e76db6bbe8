"""P4, P5: a table of dead letters that the sink has written is read and purged row by row."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from component_tests.postgres_process import stage
from streamgroups.dlq.completion import BatchOfLetters, complete
from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.stored_letters import TableLetter
from streamgroups.dlq.table_letters import ForeignRow, letter_of
from streamgroups.errors import InvalidOption, NotAuthorized, SinkRejected, SinkUnreachable
from streamgroups_sinks.postgres.letters import PostgresLetters, find_letters
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_spark.sinks.letters.of_batch import as_rows, letter_table, staged
from unit_tests.extreme_times import EXTREME_TIMES_MS
from unit_tests.letters import LETTER

FIRST = LETTER
SECOND = replace(
    FIRST, id="board/-/0123456789abcdef/sink", failed_at_ms=1_700_000_000_002, origin=None, value=None, headers=()
)


def written(conninfo: str, *letters: DeadLetter, table: str = "Dead letters") -> PostgresLetters:
    """A table with letters of a batch."""
    sink = letter_table(PostgresSink(conninfo=conninfo, table=table))
    output = stage(sink, as_rows(letters))
    with sink.open("board") as ledger, ledger.transaction() as transaction:
        transaction.write(output)
    sink.discard(output[0].stage)
    return find_letters(conninfo, table, option="--postgres")


def read(table: PostgresLetters, *ids: str) -> list[TableLetter | ForeignRow]:
    return [letter_of(row, table.table) for row in table.rows(ids)]


def test_P4_letters_are_read_as_they_were_written_the_earliest_first(postgres: str) -> None:
    table = written(postgres, SECOND, FIRST)
    assert table.table == "public.Dead letters"
    assert read(table) == [TableLetter(table.table, FIRST), TableLetter(table.table, SECOND)]
    assert read(table, SECOND.id) == [TableLetter(table.table, SECOND)]
    # The name is the same with and without the schema, so a letter is redriven once.
    assert find_letters(postgres, "public.Dead letters", option="--postgres").queue == table.queue


def test_P4_more_rows_than_one_fetch_contains_are_read(postgres: str) -> None:
    letters = [replace(FIRST, id=f"board/-/{n:04}/sink", origin=None) for n in range(250)]
    assert [it.letter.id for it in read(written(postgres, *letters)) if isinstance(it, TableLetter)] == [
        it.id for it in letters
    ]


def test_P5_a_purge_deletes_the_letters_that_were_read(postgres: str) -> None:
    table = written(postgres, FIRST, SECOND)
    again = replace(SECOND, failed_at_ms=SECOND.failed_at_ms + 1)
    written(postgres, again)
    due = [(it.id, it.failed_at_ms) for it in (FIRST, SECOND)]
    assert table.delete(due) == 1
    assert read(table) == [TableLetter(table.table, again)]
    assert (table.delete(due), table.delete([])) == (0, 0)


def test_P4_a_row_of_another_client_is_no_letter(postgres: str) -> None:
    table = written(postgres, FIRST)
    with psycopg.connect(postgres) as connection:
        connection.execute("INSERT INTO \"Dead letters\" (id, headers) VALUES ('x', '{}')")
    assert [type(it) for it in read(table)] == [TableLetter, ForeignRow]


def test_P4_a_table_that_is_missing_foreign_or_forbidden_is_rejected(postgres: str) -> None:
    table = written(postgres, FIRST)
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE flights (id text)")
    with pytest.raises(SinkRejected, match="Table dead_letters does not exist"):
        find_letters(postgres, "dead_letters", option="--postgres")
    with pytest.raises(SinkRejected, match="has no column 'group_id', so it is no table of dead letters"):
        find_letters(postgres, "flights", option="--postgres")
    with pytest.raises(InvalidOption, match=r"'DLQ' is 'a\.b\.c'"):
        find_letters(postgres, "a.b.c", option="--postgres")
    with pytest.raises(SinkUnreachable):
        find_letters("host=127.0.0.1 port=1 dbname=airport", "letters", option="--postgres")
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE ROLE letters_reader")
        connection.commit()
        try:
            with pytest.raises(NotAuthorized, match=r"Reading the dead letters of public\.Dead letters"):
                list(replace(table, conninfo=f"{postgres} options='-c role=letters_reader'").rows())
        finally:
            connection.execute("DROP ROLE letters_reader")


def written_as_a_batch(conninfo: str, *letters: DeadLetter, table: str = "letters") -> PostgresLetters:
    """A table with letters, as a query writes them."""
    sink = letter_table(PostgresSink(conninfo=conninfo, table=table))
    with staged(sink, letters) as parts, sink.open("board") as ledger, ledger.transaction() as transaction:
        transaction.write(parts)
    return find_letters(conninfo, table, option="--postgres")


def test_P4_a_table_accepts_a_letter_of_any_producer(postgres: str) -> None:
    hostile = {
        "key": b"\0",
        "value": b"\xff\0",
        "headers": [{"key": "a\0b", "value": b"\0"}, {"key": None, "value": None}],
    }
    texts = {"error": "a\0b\ud800", "error_class": "\0", "details": [("a\0b", "\udfff\x1b[0m")]}
    failures = [
        {"step": "s", "topic": "t", "partition": 0, "offset": n, "timestamp": ms, **hostile, **texts}
        for n, ms in enumerate(EXTREME_TIMES_MS.values())
    ]
    letters = list(complete(failures, BatchOfLetters("q", 1_700_000_000_001, "board")))
    table = written_as_a_batch(postgres, *letters)
    found = {it.letter.id: it.letter for it in read(table) if isinstance(it, TableLetter)}
    assert found.keys() == {it.id for it in letters}
    for letter in letters:
        assert (found[letter.id].key, found[letter.id].value) == (b"\0", b"\xff\0")
        assert found[letter.id].headers == (("a\\x00b", b"\0"), ("", None))
        (given, stored) = (it.origin.timestamp_ms for it in (letter, found[letter.id]) if it.origin is not None)
        assert stored == given or found[letter.id].details["timestamp_ms"] == str(given)


def test_P4_a_letter_is_written_without_a_field_that_its_table_cannot_store(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        columns = "id text PRIMARY KEY, group_id text, query text, failed_at timestamptz, attempt int, step text, "
        columns += "error_class text, error varchar(20), details jsonb, topic text, partition int, "
        columns += '"offset" int8, "timestamp" timestamptz, key bytea, value bytea, headers jsonb'
        connection.execute(f"CREATE TABLE letters ({columns})")
    large = replace(SECOND, error="x" * 30)
    table = written_as_a_batch(postgres, FIRST, large)
    first, second = (it.letter for it in read(table) if isinstance(it, TableLetter))
    assert first == FIRST
    assert (second.error, second.details["error_bytes"], second.details["rejected"]) == ("", "30", "error")


def test_P4_a_time_without_a_number_hides_no_letter(postgres: str) -> None:
    table = written(postgres, FIRST, SECOND)
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE \"Dead letters\" SET failed_at = 'infinity', \"timestamp\" = '-infinity'")
    found = read(table)
    assert [it.letter.failed_at_ms for it in found if isinstance(it, TableLetter)] == [0, 0]
    assert table.delete([(FIRST.id, 0), (SECOND.id, 0)]) == 2
