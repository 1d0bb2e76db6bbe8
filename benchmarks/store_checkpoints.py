"""Small triggers with the checkpoint on an object store, where each read and write of the checkpoint is a request.

A family of ``benchmarks.command``. Our copy from Kafka to Kafka is exactly-once; its peer is the copy by Spark's own source and
sink. Each run is a new program, because the client of the store has its address from the environment. The requests are those of a
whole program, divided by its batches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial

from benchmarks.bench import TASKS, Bench, environment
from benchmarks.figures import MS, Missing, Row, Unit, compare, median_of, percentile_of
from benchmarks.rounds import NotHere, Rounds, WrongCount
from benchmarks.sources import SPARK_20, STREAMGROUPS
from benchmarks.workload import TopicSpec, create
from component_tests.object_store import BUCKET, ObjectStore
from integration_tests.hadoop_s3 import NoClient, hadoop_s3_jars, s3_environment, s3_settings
from integration_tests.spark_kafka import spark_kafka_jars

_LATENCY_MS = 20
_RECORDS, _PARTITIONS = 1_000, 8
_REQUESTS = Unit("requests", more_is_better=False)
_ROUNDS = Rounds(2, warm_up=0, budget_s=400, slow_s=200)
_DEADLINE_S = 400


def store_checkpoints(bench: Bench) -> Iterator[Row]:
    """A copy from Kafka to Kafka."""
    try:
        jars = ",".join(map(str, (*hadoop_s3_jars(), *spark_kafka_jars().paths)))
    except NoClient as e:
        raise NotHere(str(e)) from None
    batches, warm_up = bench.scale.batches, bench.scale.warm_up_batches
    topic = bench.topic(TopicSpec(_RECORDS * (batches + warm_up), _PARTITIONS))
    what = f"Kafka to Kafka, trigger of {_RECORDS:,} records, checkpoint on an object store with {_LATENCY_MS} ms"
    runs = {name: partial(_run, bench, name, topic, jars) for name in (STREAMGROUPS, SPARK_20)}
    found = bench.race(what, runs, _ROUNDS)
    cells = {n: c if isinstance(c, Missing) else percentile_of([it[0] for it in c], 50) for n, c in found.items()}
    yield from compare(f"{what}, p50", MS, cells, own=STREAMGROUPS)
    cells = {n: c if isinstance(c, Missing) else median_of([it[1] for it in c]) for n, c in found.items()}
    yield from compare(f"{what}: requests", _REQUESTS, cells, own=STREAMGROUPS)


def _run(bench: Bench, name: str, topic: str, jars: str) -> tuple[list[float], float]:
    """Returns the durations of the triggers after the warm-up, in milliseconds, and the requests of a batch."""
    output = f"out-{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, output, _PARTITIONS)
    expected = bench.scale.batches + bench.scale.warm_up_batches
    with ObjectStore(_LATENCY_MS) as store:
        options = {
            "kafka.bootstrap.servers": bench.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(_RECORDS),
        }
        options |= {"group.id": uuid.uuid4().hex} if name == STREAMGROUPS else {"kafka.fetch.max.wait.ms": "20"}
        config = {
            "options": options,
            "output": output,
            "is_own": name == STREAMGROUPS,
            "until_read": True,
            "checkpoint": f"s3a://{BUCKET}/copy",
            "spark": {
                "spark.master": f"local[{TASKS}]",
                "spark.ui.enabled": "false",
                "spark.jars": jars,
                **s3_settings(store),
            },
        }
        command = [sys.executable, "-m", "integration_tests.s3_query", json.dumps(config)]
        environ = {**os.environ, **environment(), **s3_environment(store)}
        run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_DEADLINE_S)
        if run.returncode:
            raise RuntimeError(run.stderr.strip().splitlines()[-1])
        triggers: list[float] = json.loads(run.stdout.splitlines()[-1])
        n_requests = sum(store.requests.values())
    if len(triggers) < expected:
        raise WrongCount(f"{len(triggers)} triggers of {expected}")
    return triggers[bench.scale.warm_up_batches :], n_requests / len(triggers)
