"""The outputs of a query over a hostile topic, and their independent readers, which use no code of the library.

Used by ``hostile_topic``. Kafka is read by a consumer of committed records, PostgreSQL by SQL, and Delta Lake by deltalake.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from integration_tests.hostile_judge import REJECTED_FEE, Letter, Results
from integration_tests.hostile_query import ORIGIN
from streamgroups_testkit.reading import committed_messages, wait_until_no_transaction_is_open
from streamgroups_testkit.topics import create_topic

_DLQ = "streamgroups.dlq."
_PARTITIONS = 3
_LETTER = "step, error_class, attempt, key, value, headers, details, partition, offset"
_TABLES = {
    "rows": f"""topic text, "partition" int, "offset" bigint, n bigint NOT NULL, fee bigint CHECK (fee <> {REJECTED_FEE}),
        at timestamptz, place text, "timestamp" timestamptz""",
    "windows": "key bytea, window_start timestamptz, records bigint, total bigint, fees bigint, last text NOT NULL",
}
_DELTA = {
    "rows": "topic string, partition integer, offset long, n! long, fee long, at timestamp, place string, timestamp timestamp",
    "windows": "key binary, window_start timestamp, records long, total long, fees long, last! string",
}
#: The columns of a row: its place, and the others.
_COLUMNS = {
    "rows": ("partition", "offset", "n", "fee", "at", "place", "timestamp"),
    "windows": ("key", "window_start", "records", "total", "fees", "last"),
}


def create(config: dict[str, Any]) -> None:
    """Creates the output of a query, with constraints that some records violate."""
    sink, shape, board = config["sink"], config["shape"], config["board"]
    if sink == "kafka":
        admin = AdminClient({"bootstrap.servers": config["bootstrap"]})
        # Some rows have an old timestamp.
        create_topic(admin, board, _PARTITIONS, {"retention.ms": "-1"})
        create_topic(admin, config["dead"], _PARTITIONS)
    elif sink == "postgres":
        with psycopg.connect(config["postgres"]) as db:
            db.execute(f"CREATE TABLE {board} ({_TABLES[shape]})")
    else:
        columns = (it.split() for it in _DELTA[shape].split(", "))
        fields = [Field(name.rstrip("!"), PrimitiveType(type_), nullable="!" not in name) for name, type_ in columns]
        DeltaTable.create(board, Schema(fields))


def results(config: dict[str, Any]) -> Results:
    """Reads the output of a query, and its dead letters."""
    found = Results()
    read = {"kafka": _read_kafka, "postgres": _read_postgres, "delta": _read_delta}[config["sink"]]
    read(config, found)
    return found


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def _read_kafka(config: dict[str, Any], found: Results) -> None:
    place: tuple[Any, Any]
    wait_until_no_transaction_is_open(config["bootstrap"], config["board"])
    for message in committed_messages(config["bootstrap"], config["board"]):
        row = json.loads(_bytes(message.value()))
        if config["shape"] == "rows":
            time_us = message.timestamp()[1] * 1_000
            place = (row["partition"], row["offset"])
            found.add_row(place, (row.get("n"), row.get("fee"), row.get("at"), row.get("place"), time_us))
        else:
            place = (message.key(), row["start"])
            found.add_row(place, (row["records"], row["total"], row["fees"], row.get("last")))
    wait_until_no_transaction_is_open(config["bootstrap"], config["dead"])
    for message in committed_messages(config["bootstrap"], config["dead"]):
        headers: list[tuple[str, bytes | None]] = list(message.headers() or [])  # type: ignore[arg-type]
        own = [(name.removeprefix(_DLQ), it) for name, it in headers if name.startswith(_DLQ)]
        facts = {name: (it or b"").decode() for name, it in own}
        assert len(own) == len(facts), f"a header of the letter occurs twice: {own}"
        others = tuple(it for it in headers if not it[0].startswith(_DLQ))
        letter = Letter(
            facts["step"],
            (facts["error_class"],),
            int(facts["attempt"]),
            message.key(),
            message.value(),
            others,
        )
        if "offset" in facts:
            found.add_letter((int(facts["partition"]), int(facts["offset"])), letter)
        elif config["shape"] == "rows":
            partition, offset = (dict(others).get(ORIGIN) or b"").decode().split("/")
            found.add_letter((int(partition), int(offset)), letter)
        else:
            found.add_letter((message.key(), None), letter)


def _bytes(value: Any) -> bytes:
    assert isinstance(value, bytes)
    return value


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


def _read_postgres(config: dict[str, Any], found: Results) -> None:
    with psycopg.connect(config["postgres"]) as db:
        columns = [
            f'(extract(epoch FROM "{it}") * 1000000)::bigint'
            if it in ("at", "timestamp", "window_start")
            else f'"{it}"'
            for it in _COLUMNS[config["shape"]]
        ]
        with db.cursor("rows") as rows:
            rows.itersize = 50_000
            for row in rows.execute(f"SELECT {', '.join(columns)} FROM {config['board']}"):
                found.add_row(row[:2], row[2:])
        quoted = ", ".join(f'"{it}"' for it in _LETTER.split(", "))
        with db.cursor("letters") as letters:
            letters.itersize = 100
            for step, error_class, attempt, key, value, headers, *place in letters.execute(
                f"SELECT {quoted} FROM {config['dead']}"
            ):
                pairs = tuple(
                    (it["key"], None if it["value"] is None else base64.b64decode(it["value"])) for it in headers or ()
                )
                letter = Letter(step, (error_class,), attempt, key, value, pairs)
                _add_letter_of_table(found, config["shape"], letter, *place)


def _add_letter_of_table(
    found: Results, shape: str, letter: Letter, details: Any, partition: int | None, offset: int | None
) -> None:
    if shape == "windows" and letter.step == "sink":
        # The row has no column of its source.
        row = json.loads(dict(details)["record"])
        start = datetime.fromisoformat(row["window_start"]).replace(tzinfo=timezone.utc)
        found.add_letter((row["key"].encode(), round(start.timestamp() * 1_000_000)), letter)
    else:
        found.add_letter((partition, offset), letter)


# ---- Delta Lake ------------------------------------------------------------------------------------------------------


def _read_delta(config: dict[str, Any], found: Results) -> None:
    table = DeltaTable(config["board"]).to_pyarrow_table()
    columns = []
    for name in _COLUMNS[config["shape"]]:
        column = table[name]
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
    for row in zip(*columns, strict=True):
        found.add_row(row[:2], row[2:])
    if not Path(config["dead"]).exists():
        return
    letters = DeltaTable(config["dead"]).to_pyarrow_table(columns=_LETTER.split(", "))
    for it in letters.to_pylist():
        headers = tuple((pair["key"], pair["value"]) for pair in it["headers"] or ())
        letter = Letter(it["step"], (it["error_class"],), it["attempt"], it["key"], it["value"], headers)
        _add_letter_of_table(found, config["shape"], letter, it["details"], it["partition"], it["offset"])
