"""A peer: Quix Streams, with ``sdf.update`` of a counter for each record. ``bulk`` runs it in a separate environment.

It imports no module of this library, because the environment has neither streamgroups nor Spark. Quix Streams is not a
dependency.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any

from quixstreams import Application


def main(bootstrap: str, topic: str, required: int) -> None:
    """Reads at least this number of records from the earliest offset."""
    started_s = time.perf_counter()
    app = Application(
        broker_address=bootstrap,
        consumer_group=f"bench-quix-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        auto_create_topics=False,
        loglevel="ERROR",
    )
    records = 0
    ended_s = 0.0

    def count(_value: Any) -> None:
        nonlocal records, ended_s
        records += 1
        if records == required:
            ended_s = time.perf_counter()
            app.stop()

    app.dataframe(app.topic(topic, value_deserializer="bytes", key_deserializer="bytes")).update(count)
    app.run()
    print(json.dumps({"records": records, "seconds": ended_s - started_s}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
