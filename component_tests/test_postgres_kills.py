"""X2, X4: a process that writes to PostgreSQL is killed at any point: no record is lost, duplicated or partially
written.
"""

from __future__ import annotations

import random

import psycopg
import pytest

from component_tests.postgres_process import GROUP, P0, ROWS_IN_BATCH, open_at, sink, start, write_batch
from streamgroups_testkit.waits import wait_until

N_KILLS = 5


def state(conninfo: str) -> tuple[list[int], int]:
    """The state that a reader sees at one moment: the offsets of the rows, and the position of the ledger."""
    with psycopg.connect(conninfo) as connection:
        row = connection.execute(
            "SELECT (SELECT coalesce(array_agg(at ORDER BY at), '{}') FROM flights),"
            " (SELECT next_offset FROM streamgroups_ledger WHERE group_id = %s)",
            [GROUP],
        ).fetchone()
    assert row
    return row


@pytest.fixture
def opened(postgres: str) -> str:
    """A database with an empty table, and a ledger at position 0."""
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE flights (partition int8, at int8)")
    open_at(sink(postgres), {P0: 0})
    return postgres


def settled(conninfo: str) -> bool:
    """Whether the server has closed all other connections."""
    with psycopg.connect(conninfo) as connection:
        others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return not connection.execute(others + " AND backend_type = 'client backend'").fetchall()


@pytest.mark.parametrize(
    ("where", "n_written"),
    [("staged", 0), ("copying", 0), ("written", 0), ("advanced", 0), ("committing", ROWS_IN_BATCH)],
)
def test_killed_at_a_named_place(opened: str, where: str, n_written: int) -> None:
    with start(conninfo=opened, kill=where) as killed:
        assert killed.wait(60) == -9
    wait_until(lambda: settled(opened), "the server has noticed", 30, 0.02)
    assert state(opened) == (list(range(n_written)), n_written)
    write_batch(sink(opened))
    at = n_written + ROWS_IN_BATCH
    assert state(opened) == (list(range(at)), at)


def test_killed_anywhere(opened: str) -> None:
    chance = random.Random(1)
    reached = [0]
    for _ in range(N_KILLS):
        with start(conninfo=opened) as killed:
            assert killed.stdout
            killed.stdout.read(1 + chance.randrange(3))
            # Only complete batches are visible at every moment, also during writes.
            for _ in range(chance.randrange(8)):
                offsets, at = state(opened)
                assert offsets == list(range(at))
            killed.kill()
        reached.append(state(opened)[1])
    wait_until(lambda: settled(opened), "the server has noticed", 30, 0.02)
    offsets, at = state(opened)
    assert offsets == list(range(at))
    assert at > reached[-2] > 0
