"""P4, X9: ten thousand records with 1 % poison of eight kinds, with kills: each record is in the output or in the dead
letters, and each letter explains itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.dead_letter_query import LIMIT
from integration_tests.dead_letters import letters_in, without_topic_id
from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed
from streamgroups_testkit.waits import wait_until

N = 10_000
PARTITIONS = 4
#: The poison by its kind: the value of record ``n``, and the step and the class of its letter.
POISON: list[tuple[Callable[[int], bytes], str, str]] = [
    (lambda n: b'{"n": %d' % n, "decode", "Malformed"),
    (lambda n: b'{"n": %d, "gate": "\xff"}' % n, "decode", "NotUtf8"),
    (lambda n: b"", "decode", "EmptyValue"),
    (lambda n: b"[%d]" % n, "decode", "NotAnObject"),
    (lambda n: b'{"n": %d} more' % n, "decode", "TrailingBytes"),
    (lambda n: b'{"n": "n%d"}' % n, "decode", "FieldType"),
    (lambda n: b'{"n": %d, "delay": 7, "seats": 0}' % n, "priced", "ZeroDivisionError"),
    (lambda n: b'{"n": %d, "delay": 7, "seats": 1, "padding": %d}' % (n, LIMIT), "sink", "RecordRejected"),
]


def kind_of(n: int) -> int | None:
    """The kind of poison of a record."""
    return n // 100 % len(POISON) if n % 100 == 37 else None


@LONG
@pytest.mark.parametrize("dead_letters", ["kafka", "postgres"])
def test_P4_X9_each_record_is_in_one_of_both_with_kills(
    bootstrap: str, new_topic: Callable[..., str], group: str, postgres: str, tmp_path: Path, dead_letters: str
) -> None:
    topic, board, dead = new_topic(PARTITIONS), new_topic(3), new_topic(2)
    producer = ordered_producer(bootstrap)
    for n in range(N):
        kind = kind_of(n)
        value = b'{"n": %d, "delay": 3, "seats": 2}' % n if kind is None else POISON[kind][0](n)
        producer.produce(topic, key=str(n), value=value, partition=n % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    options = shared_options(bootstrap, group, topic) | {"maxOffsetsPerTrigger": "1000"}
    config = {
        "options": options,
        "bootstrap": bootstrap,
        "board": board,
        "dead": dead,
        "checkpoint": str(tmp_path / "checkpoint"),
        **({"postgres": postgres} if dead_letters == "postgres" else {}),
    }

    def read() -> int:
        return sum(committed_offsets(bootstrap, group, topic).values())

    for least in (1, N // 3, 2 * N // 3, N):
        with running("dead_letter_query", config, tmp_path / "log") as query:

            def has_read(least: int = least) -> bool:
                query.check()
                return read() >= least

            wait_until(has_read, f"{least} records are committed", 120)

    written = Counter(json.loads(it.value)["n"] for it in read_committed(bootstrap, board))
    assert written == Counter(n for n in range(N) if kind_of(n) is None)
    letters = _letters(bootstrap, postgres, dead, dead_letters)
    expected = Counter(n for n in range(N) if kind_of(n) is not None)
    assert Counter(int(it["key"]) for it in letters) == expected
    for letter in letters:
        n = int(letter["key"])
        poison, step, error_class = POISON[kind_of(n) or 0]
        assert (letter["step"], letter["error_class"]) == (step, error_class)
        assert letter["error"]
        if step == "sink":
            continue
        # The others contain their source record.
        assert letter["value"] == poison(n)
        assert without_topic_id(letter["id"]) == f"{group}/{topic}/{n % PARTITIONS}/{n // PARTITIONS}/{step}"


def _letters(bootstrap: str, postgres: str, dead: str, dead_letters: str) -> list[dict[str, Any]]:
    names = ("id", "key", "value", "step", "error_class", "error")
    if dead_letters == "kafka":
        return [{name: getattr(it, name) for name in names} for it in letters_in(bootstrap, dead)]
    with psycopg.connect(postgres) as connection:
        rows = connection.execute(f'SELECT {", ".join(names)} FROM "{dead}"').fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
