"""A process whose native reader works on ``hostile_librdkafka.c``, and does random things with it.

Started by ``test_hostile_library``: a process has one librdkafka, and a mistake in C ends it. Arguments: the library, and how many
operations. Every batch that comes out must be valid Arrow, within its limits, with each range's offsets in order.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from typing import Any

import pyarrow as pa

from streamgroups_kafka.read.arrow_columns import COLUMNS

MAX_ROWS, MAX_BYTES = 200, 20_000
#: The largest record that the library makes: a value, a key, and a few headers.
MAX_RECORD = 71_000


def main(library: str, operations: int) -> None:
    """Does this number of random things."""
    native = importlib.import_module("streamgroups_kafka._native")
    native.load(library)
    by = random.Random(int(os.environ["SEED"]))
    client: Any = None
    schema = pa.schema(list(COLUMNS.items()))
    started = taken = 0
    for _ in range(operations):
        if client is None:
            client, started = native.Client([]), 0
        what = by.random()
        try:
            if not started or what < 0.05:
                fields = by.sample(range(len(COLUMNS)), by.randint(1, len(COLUMNS)))
                schema = pa.schema([(name, COLUMNS[name]) for name in (list(COLUMNS)[i] for i in fields)])
                started = 0
                ranges = [("flights", p, first := by.randint(0, 50), first + by.randint(0, 300)) for p in range(3)]
                client.start(ranges, fields, MAX_ROWS, MAX_BYTES)
                started = len(ranges)
            elif what < 0.55:
                client.fill(0)
            elif what < 0.8:
                taken += check(client, schema)
            elif what < 0.85:
                client.seek(by.randrange(started), by.randint(0, 2**40))
            elif what < 0.9:
                client.end(by.randrange(started))
            elif what < 0.93:
                client.watermarks("flights", 0, 0)
            elif what < 0.96:
                client.stop()
                started = 0
            else:
                client.close()
                client = None
        except native.NativeError:
            pass
    sys.stdout.write(f"{taken}\n")


def check(client: Any, schema: pa.Schema) -> int:
    """Takes the available records, and reads them."""

    class Exported:
        def __arrow_c_array__(self, requested: object = None) -> tuple[object, object]:
            return schema.__arrow_c_schema__(), client.export()

    batch = pa.record_batch(Exported())
    batch.validate(full=True)
    assert batch.num_rows <= MAX_ROWS, batch.num_rows
    size = sum(batch.column(name).nbytes for name in batch.schema.names if name in ("key", "value", "headers"))
    # Beside what counts there are the offsets and the validity of rows.
    assert size <= max(MAX_BYTES, MAX_RECORD) + 16 * (MAX_ROWS + 1) * 4, size
    return batch.num_rows


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
