"""Kills members of a group at named points, again and again, and lets independent readers count what has arrived.

``python -m integration_tests.campaign kafka --kills 100``; a short one is a test (``test_killed_in_the_middle_of_a_commit``). Two queries share a group
and write exactly once, each supervised in a process of its own; records keep coming. In turn a point is armed (``dying``), whoever
passes it dies, and the campaign goes on. In the end all is read back: every record once, and those of a partition in their order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.harness import Load, committed, end_offsets, read_committed, wait_until

PARTITIONS = 4
POINTS = (
    "before-offset-log",
    "mid-read",
    "transaction-begun",
    "inside-transaction",
    "before-offsets",
    "before-commit",
    "after-commit",
)
#: A ledger has its positions in the sink's own transaction.
LEDGER_POINTS = tuple(point for point in POINTS if point != "before-offsets")
_HERE = Path(__file__).parent
#: One kill in so many takes the whole query, driver and JVM; the others one Python process of it, and the query is started again.
_DRIVERS_ONE_IN = 5

_BROKERS_ONE_IN = 20

#: Reads back (partition, value) of all that has arrived, in the order of arrival within a partition.
ReadBack = Callable[[], list[tuple[int, str]]]


@dataclass
class Verdict:
    """What came of a campaign.

    Args:
        kills: how many processes or queries were killed, by point.
        records: how many records there were.
        lost: those that did not arrive.
        repeated: those that arrived more than once.
        disordered: partitions whose records did not arrive in order.
    """

    kills: Counter[str]
    records: int
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.disordered)


class CampaignMember:
    """A query that comes back however it dies."""

    def __init__(self, directory: Path, name: str, config: dict[str, Any]) -> None:
        self._directory, self._name = directory, name
        self._config = {**config, "name": name, "checkpoint": str(directory / f"checkpoint-{name}")}
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def see_to_it(self) -> None:
        """Starts it if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        python_path = [str(_HERE / "dying"), str(_HERE.parent), str(_HERE.parent / "connectors")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": sys.executable,
            "STREAMGROUPS_DEATHS": str(self._directory / "deaths"),
            "STREAMGROUPS_MEMBER": self._name,
            "STREAMGROUPS_SABOTAGE": "ledger" if self._config["sabotaged"] else "",
        }
        # The driver names itself: its processes inherit it.
        run = (
            "import os, runpy, sys; os.environ['STREAMGROUPS_DRIVER'] = str(os.getpid());"
            "runpy.run_module('integration_tests.campaign_query', run_name='__main__', alter_sys=True)"
        )
        with (self._directory / f"{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", run, json.dumps(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Asks it to stop; kills it if it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(30)
            raise AssertionError(f"{self._name} did not stop") from None


def campaign(
    bootstrap: str,
    directory: Path,
    sink: str,
    to: str,
    read_back: ReadBack,
    *,
    kills: int,
    timeout_s: float,
    points: tuple[str, ...] | None = None,
    per_second: int = 400,
    protocol: str = "classic",
    sabotaged: bool = False,
    kill_broker: Callable[[], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Runs a campaign.

    Args:
        bootstrap: the broker.
        directory: for checkpoints and logs.
        sink: ``kafka``, ``postgres`` or ``delta``.
        to: the topic, the connection string or the path.
        read_back: how an independent reader sees what has arrived.
        kills: how many.
        timeout_s: for all of it, reading to the end included.
        points: where they die, in turn.
        per_second: records that come in.
        protocol: of the group.
        sabotaged: without transactions, or without the ledger: records must then arrive twice, or the campaign sees nothing.
        kill_broker: kills the broker and brings it back; one kill in so many is this.
        tell: is told what happens.

    Raises:
        AssertionError: if it cannot go on: a point is not passed, or the queries do not read to the end.
    """
    topic, group = f"in-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    _create(bootstrap, topic)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingPosition": "TRIM_HORIZON",
        "kafka.group.protocol": protocol,
        # Under KIP-848 the broker decides it.
        **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
        "kafka.max.poll.interval.ms": "60000",
        "maxOffsetsPerTrigger": "2000",
    }
    deaths = directory / "deaths"
    deaths.mkdir(parents=True)
    log = deaths / "deaths.log"
    log.touch()
    config = {"bootstrap": bootstrap, "sink": sink, "to": to, "options": options, "sabotaged": sabotaged}
    members = [CampaignMember(directory, name, config) for name in ("ann", "bob")]
    choose = random.Random(sink)
    turns = points or _points_of(sink, sabotaged=sabotaged)
    deadline_s = time.monotonic() + timeout_s

    def left_s() -> float:
        return max(1.0, deadline_s - time.monotonic())

    def n_deaths() -> int:
        return len(log.read_text().splitlines())

    def all_are_up() -> bool:
        for member in members:
            member.see_to_it()
        return True

    try:
        all_are_up()
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=per_second) as load:
            for i in range(kills):
                if kill_broker is not None and i % _BROKERS_ONE_IN == _BROKERS_ONE_IN - 1:
                    kill_broker()
                    with log.open("a") as deaths_so_far:
                        deaths_so_far.write("broker broker broker\n")
                    tell(f"{i + 1}: broker")
                    continue
                point = turns[i % len(turns)]
                victim = "driver" if choose.randrange(_DRIVERS_ONE_IN) == 0 else "process"
                (deaths / f".{point}").write_text(victim)
                (deaths / f".{point}").rename(deaths / point)
                wait_until(
                    lambda i=i: all_are_up() and n_deaths() > i,  # type: ignore[misc]
                    f"somebody dies {point}, after {n_deaths()} deaths; see {directory}",
                    min(120, left_s()),
                )
                tell(f"{i + 1}: {point}, {victim}")
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(
            lambda: all_are_up() and committed(bootstrap, group, topic) == ends,
            f"all is read; see {directory}",
            min(180, left_s()),
        )
    finally:
        for member in members:
            member.stop()
    kinds = Counter(line.split()[0] for line in log.read_text().splitlines())
    return _judged(kinds, load.count, read_back())


def _points_of(sink: str, *, sabotaged: bool) -> tuple[str, ...]:
    if sink != "kafka":
        return LEDGER_POINTS
    # Without transactions nobody begins or commits one.
    return ("before-offset-log", "mid-read", "inside-transaction") if sabotaged else POINTS


def _judged(kills: Counter[str], n_records: int, arrived: list[tuple[int, str]]) -> Verdict:
    expected = {str(i) for i in range(n_records)}
    values = Counter(value for _, value in arrived)
    in_order: dict[int, list[int]] = {}
    for partition, value in arrived:
        in_order.setdefault(partition, []).append(int(value))
    return Verdict(
        kills,
        n_records,
        lost=sorted(expected - values.keys()),
        repeated=sorted(value for value, n in values.items() if n > 1),
        disordered=sorted(p for p, numbers in in_order.items() if numbers != sorted(numbers)),
    )


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


@contextmanager
def target(sink: str, bootstrap: str, directory: Path) -> Iterator[tuple[str, ReadBack]]:
    """Where a campaign writes to, and who reads it back: no code of ours."""
    if sink == "kafka":
        topic = f"out-{uuid.uuid4().hex[:8]}"
        _create(bootstrap, topic)
        yield topic, lambda: [(m.partition, m.value.decode().rstrip(".")) for m in read_committed(bootstrap, topic)]
    elif sink == "postgres":
        import psycopg

        from integration_tests.postgres import PostgresServer

        with PostgresServer() as server, server.database() as conninfo:

            def rows() -> list[tuple[int, str]]:
                with psycopg.connect(conninfo) as db:
                    found = db.execute(
                        'SELECT "partition", rtrim(value, \'.\') FROM board ORDER BY "partition", "offset"'
                    )
                    return [(int(p), str(v)) for p, v in found.fetchall()]

            yield conninfo, rows
    else:
        from deltalake import DeltaTable

        path = str(directory / "board")

        def table() -> list[tuple[int, str]]:
            found = DeltaTable(path).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
            values = found.column("value").to_pylist()
            return [(p, v.rstrip(".")) for p, v in zip(found.column("partition").to_pylist(), values, strict=True)]

        yield path, table


def main() -> int:
    from integration_tests.conftest import BROKER_PROPERTIES
    from streamgroups_broker import EmbeddedKafka

    parser = argparse.ArgumentParser(prog="python -m integration_tests.campaign", description=__doc__)
    parser.add_argument("sinks", nargs="+", choices=["kafka", "postgres", "delta"])
    parser.add_argument("--kills", type=int, default=100, help="for each sink")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic", help="of the group")
    parser.add_argument(
        "--sabotaged", action="store_true", help="without transactions or ledger: the campaign must notice"
    )
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each sink")
    asked = parser.parse_args()
    failed = False
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        kafka = stack.enter_context(EmbeddedKafka(data_dir=data_dir, properties=BROKER_PROPERTIES))

        def kill_broker() -> None:
            kafka.kill_node(1)
            kafka.restart_node(1)

        for sink in asked.sinks:
            directory = Path(tempfile.mkdtemp(prefix=f"campaign-{sink}-"))
            with target(sink, kafka.bootstrap_servers, directory) as (to, read_back):
                began_s = time.monotonic()
                verdict = campaign(
                    kafka.bootstrap_servers,
                    directory,
                    sink,
                    to,
                    read_back,
                    kills=asked.kills,
                    timeout_s=asked.timeout,
                    protocol=asked.protocol,
                    sabotaged=asked.sabotaged,
                    kill_broker=kill_broker,
                    tell=lambda text: print(text, file=sys.stderr),
                )
            print(
                f"{sink}: {verdict.kills.total()} kills in {time.monotonic() - began_s:.0f} s {dict(verdict.kills)}, "
                f"{verdict.records} records, {len(verdict.lost)} lost, {len(verdict.repeated)} twice, "
                f"partitions out of order: {verdict.disordered or 'none'}"
            )
            failed = failed or not verdict.holds
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
