"""A campaign of faults for an instance: its manager, its workers and their processors are killed and frozen under load.

Run as ``python -m integration_tests.campaign.processors --faults 20 --seed 1``; ``test_workers_survive_faults`` runs a short one.
One processor copies a topic into another topic, and the other one counts in windows into PostgreSQL, both exactly once
(``campaign.processor_faults``). After each fault the campaign waits until all replicas run and have committed new records. At
the end an independent reader finds each record once, in the order of its partition, and a plain count by pandas
(``campaign.windows``) has the rows of the table. Source: SEMANTICS P2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from integration_tests.campaign.controls import STUCK, is_noticed, verdict_of
from integration_tests.campaign.processor_faults import (
    REPLICAS,
    SESSION_TIMEOUT_S,
    FaultyInstance,
    Recovery,
    cold_command,
    connections,
    copy_text,
)
from integration_tests.campaign.processor_histories import ProcessorHistories, decisions
from integration_tests.campaign.processor_results import ProcessorResult
from integration_tests.campaign.processor_turns import SABOTAGES, FaultTurn, fault_turns, revealing_turns
from integration_tests.campaign.record import add_options, keep
from integration_tests.campaign.results import here
from integration_tests.campaign.targets import create
from integration_tests.campaign.windows import (
    CLOSING,
    PARTITIONS,
    TOPIC_CONFIG,
    Differences,
    compare,
    key_of,
    time_ms_of,
)
from integration_tests.history.anomalies import Report
from integration_tests.programs import running_command
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.postgres import PostgresServer
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.reading import committed_offsets, read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.spark_sessions import JVM, shared_spark_home
from streamgroups_testkit.waits import NotInTime, wait_until

_TO_THE_END_S, _SABOTAGED_S = 600, 120


@dataclass
class Verdict:
    """The result of a campaign.

    Args:
        records: the number of records that were produced.
        rows: the number of rows in the table.
        recoveries: the measured times, one for each fault.
        lost: the records without a copy.
        repeated: the records with several copies.
        disordered: the partitions whose copies are out of order.
        windows: the differences of the table from the plain count.
        outdated: the workers without a lease that did not end.
        wrong_members: the groups in which a replica has another number of members than one.
        orphans: the processes of killed workers that did not end.
        errors: the errors of states.
        stuck: what did not happen in time. Records that were not read are not lost then.
        reports: the results of the checker of histories, which shares no code with the other parts, by processor.
    """

    records: int
    rows: int
    recoveries: Sequence[Recovery]
    lost: list[str]
    repeated: list[str]
    disordered: list[int]
    windows: Differences
    outdated: list[str] = field(default_factory=list)
    wrong_members: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    reports: Mapping[str, Report] = field(default_factory=dict)

    @property
    def anomalies(self) -> dict[str, int]:
        """The number of anomalies by their names, without those that did not occur."""
        found: dict[str, Sequence[object]] = {
            "copies lost": self.lost,
            "copies twice": self.repeated,
            "partitions out of order": self.disordered,
            "rows missing": self.windows.missing,
            "rows different": self.windows.different,
            "rows twice": self.windows.repeated,
            "outdated workers run": self.outdated,
            "replicas without exactly one member": self.wrong_members,
            "processes left": self.orphans,
            "errors of states": self.errors,
            STUCK: self.stuck,
        }
        by_history = Counter[str]()
        for report in self.reports.values():
            by_history.update(report.counts)
        return {name: len(it) for name, it in found.items() if it} | by_history

    @property
    def invariants(self) -> dict[str, str]:
        """The decision about each invariant of ``history.anomalies``."""
        return {name: it.to_text() for name, it in decisions(self.reports).items()}

    @property
    def holds(self) -> bool:
        return not self.anomalies

    def __str__(self) -> str:
        faults = dict(Counter(it.turn.fault for it in self.recoveries))
        shown = [*self.lost[:2], *self.repeated[:2], *self.windows.missing[:2], *self.windows.different[:2]]
        shown += [
            *self.windows.repeated[:2],
            *self.outdated,
            *self.wrong_members,
            *self.orphans,
            *self.errors,
            *self.stuck,
        ]
        return f"{faults}, {self.records} records, {self.rows} rows, {self.anomalies or 'no anomaly'} {shown or ''}"


def campaign(
    instance: FaultyInstance,
    conninfo: str,
    turns: Sequence[FaultTurn],
    *,
    per_second: int = 200,
    faults_s: float = math.inf,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Runs a campaign.

    Args:
        instance: the instance, whose processors are not defined yet.
        conninfo: the database of the table.
        turns: the faults.
        per_second: the rate of the producer, in records per second.
        faults_s: the time after which no more faults are injected, in seconds.
        report: called with a description of each fault.

    A campaign that does not settle has a verdict too: if a processor does not run again after a fault, or does not read to the end.

    Raises:
        AssertionError: if a command or a processor fails.
    """
    histories = ProcessorHistories(instance, _TO_THE_END_S)
    record: dict[str, Any] = {
        "key_of": key_of,
        "time_ms_of": time_ms_of,
        "on_acknowledged": histories.acknowledged,
    }
    recoveries: list[Recovery] = []
    stuck: list[str] = []
    load = Load(instance.bootstrap, instance.source, partitions=PARTITIONS, per_second=per_second, **record)
    instance.declare()
    with instance.managed(), histories.observing():
        instance.command("processors", "start", *REPLICAS, "--wait", "15m")
        try:
            with load:
                wait_until(
                    lambda: instance.have_committed(per_second * 5), f"both begin; see {instance.directory}", 900
                )
                last_fault_s = time.monotonic() + faults_s
                for number, turn in enumerate(turns, 1):
                    if time.monotonic() > last_fault_s:
                        break
                    histories.injected(turn)
                    recovery = instance.inject(turn)
                    histories.healed(turn)
                    recoveries.append(recovery)
                    report(f"{number}: {recovery}")
            produce(instance.bootstrap, instance.source, PARTITIONS, partitions=PARTITIONS, first=CLOSING, **record)
            _read_to(instance, load.count + PARTITIONS)
            if not instance.sabotaged:
                instance.stop(*REPLICAS)
        except NotInTime as e:
            stuck.append(str(e))
    return _judged(instance, conninfo, load.count, recoveries, stuck, histories)


def _read_to(instance: FaultyInstance, end: int) -> None:
    """Waits until both processors have read to the end. Without a safeguard they can prevent each other from it."""
    wait_until(
        lambda: instance.all_run() and set(instance.committed().values()) == {end},
        f"both read to the end, {end}; see {instance.directory}",
        _SABOTAGED_S if instance.sabotaged else _TO_THE_END_S,
    )


def _judged(
    instance: FaultyInstance,
    conninfo: str,
    count: int,
    recoveries: Sequence[Recovery],
    stuck: list[str],
    histories: ProcessorHistories,
) -> Verdict:
    if not (instance.sabotaged or stuck):
        wait_until_no_transaction_is_open(instance.bootstrap, instance.output, 180)
    copies = [(it.partition, int(it.value.rstrip(b"."))) for it in read_committed(instance.bootstrap, instance.output)]
    numbers = Counter(number for _, number in copies)
    expected = {*range(count), *range(CLOSING, CLOSING + PARTITIONS)}
    assert numbers.keys() <= expected, "a copy has no record"
    in_order = {p: [number for it, number in copies if it == p] for p in range(PARTITIONS)}
    with psycopg.connect(conninfo) as db:
        found = db.execute("SELECT start, place, revision, n, total FROM counts").fetchall()
    rows = [json.dumps(dict(zip(("start", "place", "revision", "n", "total"), row, strict=True))) for row in found]
    windows, errors = compare(rows, count), instance.state_errors()
    return Verdict(
        count,
        len(rows),
        recoveries,
        lost=[str(it) for it in sorted(expected - numbers.keys())] if not stuck else [],
        repeated=[str(number) for number, n in sorted(numbers.items()) if n > 1],
        disordered=[p for p, it in in_order.items() if it != sorted(it)],
        windows=windows if not stuck else replace(windows, missing=[]),
        outdated=instance.outdated,
        wrong_members=instance.wrong_members,
        orphans=instance.orphans,
        errors=errors,
        stuck=stuck,
        reports=histories.finish([(p, str(number)) for p, number in copies], rows, count, errors),
    )


@contextmanager
def faulty_instance(bootstrap: str, directory: Path, conninfo: str, sabotaged: str = "") -> Iterator[FaultyInstance]:
    """Creates an instance with its topics, and the environment of its commands. All its processes end with the block."""
    variables = {
        "STREAMGROUPS_CONFIG": str(connections(directory, bootstrap, conninfo)),
        "STREAMGROUPS_PROCESSORS": str(directory / "runs"),
        "SPARK_HOME": str(shared_spark_home()),
        "SPARK_LAUNCHER_OPTS": JVM,
    }
    with mock.patch.dict(os.environ, variables):
        name = directory.name.lower().replace("_", "-")
        source, output = f"in-{name}", f"out-{name}"
        create(bootstrap, source, TOPIC_CONFIG)
        create(bootstrap, output)
        instance = FaultyInstance(bootstrap, directory, source=source, output=output, sabotaged=sabotaged)
        try:
            yield instance
        finally:
            instance.close()


def cold_start_s(instance: FaultyInstance) -> float:
    """The time from the start of one processor in the foreground until its first commit, in seconds."""
    output = f"cold-{instance.output}"
    create(instance.bootstrap, output)
    file = instance.directory / f"cold-{instance.name}.yaml"
    source = f"warm-{instance.output}"
    create(instance.bootstrap, source)
    produce(instance.bootstrap, source, 100, partitions=PARTITIONS)
    file.write_text(copy_text("copy", source, output))
    began_s = time.monotonic()
    log = instance.directory / "cold.log"
    with running_command(cold_command(file), log, {**os.environ, **instance.environment}) as program:

        def has_committed() -> object:
            program.check()
            return committed_offsets(instance.bootstrap, f"{file.stem}.copy", source)

        wait_until(has_committed, "the first commit", 900)
    return time.monotonic() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration_tests.campaign.processors", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="the number of faults")
    parser.add_argument("--seed", type=int, default=1, help="of the order of faults")
    parser.add_argument("--sabotaged", choices=SABOTAGES, default="", help="take it away: 0 if it is noticed")
    parser.add_argument("--per-second", type=int, default=200, help="the rate of the producer, in records")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of faults")
    add_options(parser)
    given = parser.parse_args()
    began_s = time.monotonic()
    report = partial(print, file=sys.stderr, flush=True)
    turns = revealing_turns(given.sabotaged, given.faults) if given.sabotaged else fault_turns(given.faults, given.seed)
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="campaign-processors-"))
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        kafka = stack.enter_context(EmbeddedKafka(1, data_dir=data, properties=BROKER_PROPERTIES))
        conninfo = stack.enter_context(stack.enter_context(PostgresServer()).database())
        servers = kafka.bootstrap_servers
        instance = stack.enter_context(faulty_instance(servers, directory, conninfo, given.sabotaged))
        cold_s = cold_start_s(instance)
        report(f"{directory}: cold start {cold_s:.1f} s")
        faults_s = given.minutes * 60
        verdict = campaign(instance, conninfo, turns, per_second=given.per_second, faults_s=faults_s, report=report)
    day, commit, versions = here(kafka.version)
    result = ProcessorResult.of(
        verdict.recoveries,
        day=day,
        commit=commit,
        versions=versions,
        seed=given.seed,
        sabotaged=given.sabotaged,
        records=verdict.records,
        rows=verdict.rows,
        anomalies=verdict.anomalies,
        invariants=verdict.invariants,
        cold_start_s=round(cold_s, 1),
        session_timeout_s=SESSION_TIMEOUT_S,
        took_s=round(time.monotonic() - began_s),
    )
    report(str(verdict))
    report(result.to_line())
    keep(result.to_line(), given.results, is_recorded=given.record)
    if given.sabotaged:
        report(verdict_of(given.sabotaged, verdict.anomalies))
        return int(not is_noticed(given.sabotaged, verdict.anomalies))
    return int(not verdict.holds)


if __name__ == "__main__":
    sys.exit(main())
