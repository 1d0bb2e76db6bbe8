"""Fault injection campaigns: faults at named points of running queries, and independent readers that count the output.

Run as ``python -m integration_tests.campaign kafka --kills 100``; ``test_killed_in_the_middle_of_a_commit`` runs a
short one. Two queries share a group and write exactly once. ``sg.supervise`` runs each in a separate process, the
second on separate executors, while a producer appends records.

In each turn the campaign arms a point (``dying/sitecustomize.py``). The first process that reaches the point waits
there, and the campaign injects one fault (``campaign.turns``). At the end an independent reader checks that every record
arrived once and in the order of its partition.

A stateful query (``--kind stateful``) is the only member of its group, and drops the records that its state contains. If
its state is ahead of the output, records are lost; if it is behind, records arrive twice. Queries with windows (``--kind
windows``) share a group and its state: ``campaign.windows`` compares their output with a plain count. With ``--kind
savepoints`` savepoints of them are created meanwhile (``campaign.savepoints``), and ``campaign.forks`` compares forks. Queries of ``--kind
zombies`` sleep at writes of positions (``campaign.zombies``) while resets are applied: ``campaign.resets`` checks the order of
their output. Source: SEMANTICS C3, F1-F3, G8, X1-X4, S10.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from integration_tests.campaign.cluster import checked_min_insync, cluster_of
from integration_tests.campaign.controls import is_noticed, verdict_of
from integration_tests.campaign.full_disks import BROKER_FAULT, BROKER_SIZE_MIB, SmallDisk
from integration_tests.campaign.input_topics import INPUT_PREFIX
from integration_tests.campaign.plan import Plan
from integration_tests.campaign.record import keep
from integration_tests.campaign.results import Result, here
from integration_tests.campaign.running import campaign
from integration_tests.campaign.settings import (
    Settings,
    has_fault,
    parser,
    protocols_of,
    replay_command,
    settings_of,
    turns_of,
)
from integration_tests.campaign.shrinking import shrunk
from integration_tests.campaign.storage import CampaignStorage
from integration_tests.campaign.targets import target
from integration_tests.campaign.turns import Turn
from integration_tests.campaign.unclean_elections import UNCLEAN_ELECTION
from integration_tests.campaign.verdict import Verdict
from integration_tests.secured_brokers import Listeners
from streamgroups_broker import EmbeddedKafka


def one(kafka: EmbeddedKafka, settings: Settings, sink: str, protocol: str, secured: Listeners | None = None) -> bool:
    """Runs one campaign and stores its result; shrinks a failure if that is requested.

    Returns:
        Whether the output is right. With a disabled safeguard, whether the campaign has found the anomaly that it leaves.
    """
    turns, holds = turns_of(settings, sink, protocol), False
    run = partial(_run, kafka, settings, sink, protocol, secured=secured)
    try:
        verdict = run(turns)
        holds = verdict.holds
    finally:
        if not holds:
            print(f"To repeat it: {replay_command(settings, sink, protocol)}", flush=True)
    if not holds and settings.is_shrunk:

        def fails(fewer: Sequence[Turn]) -> bool:
            try:
                found = run(fewer)
                return not found.holds and found.is_out_of_reach <= verdict.is_out_of_reach
            except AssertionError as e:
                # A point can be out of reach without the faults before it.
                print(f"not decided: {e}", file=sys.stderr, flush=True)
                return False

        necessary = shrunk(turns, fails, max_runs=settings.max_shrink_runs)
        command = replay_command(replace(settings, turns=tuple(necessary)), sink, protocol)
        print(f"{len(necessary)} of {len(turns)} faults are enough: {command}", flush=True)
    if settings.sabotaged:
        print(verdict_of(settings.sabotaged, verdict.anomalies), flush=True)
        return is_noticed(settings.sabotaged, verdict.anomalies)
    return holds


def _run(
    kafka: EmbeddedKafka,
    settings: Settings,
    sink: str,
    protocol: str,
    turns: Sequence[Turn],
    *,
    secured: Listeners | None = None,
) -> Verdict:
    """Runs the turns, prints the verdict and stores the result."""
    directory = Path(tempfile.mkdtemp(prefix=f"campaign-{sink}-"))
    began_s, kind = time.monotonic(), settings.kind
    report = partial(print, file=sys.stderr, flush=True)
    with (
        target(sink, kafka.bootstrap_servers, directory) as (to, read_back),
        CampaignStorage(sink, to, directory, {fault for _, fault in turns}, settings.storage, report) as storage,
    ):
        plan = Plan(
            kafka.bootstrap_servers,
            directory,
            sink,
            to,
            read_back,
            turns=turns,
            timeout_s=settings.timeout_s,
            faults_s=settings.faults_s,
            per_second=settings.per_second,
            protocol=protocol,
            sabotaged=settings.sabotaged,
            n_members=settings.n_members,
            kind=kind,
            kafka=kafka,
            seed=settings.seed,
            n_savepoints=settings.n_savepoints if kind == "savepoints" else 0,
            max_lag_s=settings.max_lag_s,
            storage=storage,
            report=report,
            secured=secured,
        )
        verdict = campaign(plan)
    took_s = round(time.monotonic() - began_s)
    result = _result(kafka.version, settings, sink, protocol, verdict, took_s)
    # An unclean election needs an input that only its leader has.
    other = INPUT_PREFIX if any(fault == UNCLEAN_ELECTION for _, fault in turns) else None
    result = replace(result, min_insync=checked_min_insync(kafka.bootstrap_servers, settings.n_nodes, other))
    keep(result.to_line(), settings.results, is_recorded=settings.is_recorded)
    what = f"{sink}, {kind}, {protocol}, {settings.sabotaged or 'nothing'} taken away"
    print(f"{what}, seed {settings.seed}, {result.took_s} s: {verdict}", flush=True)
    if kind == "savepoints":
        print(verdict.savepoints.to_text(verdict.victims), flush=True)
    if verdict.report is not None and not verdict.report.holds:
        print(f"{verdict.history}\n{verdict.report}", flush=True)
    return verdict


def _result(kafka_version: str, settings: Settings, sink: str, protocol: str, verdict: Verdict, took_s: int) -> Result:
    """The line of the file of results."""
    day, commit, versions = here(kafka_version)
    return Result(
        day=day,
        commit=commit,
        versions=versions,
        sink=sink,
        protocol=protocol,
        nodes=settings.n_nodes,
        kind=settings.kind,
        sabotaged=settings.sabotaged,
        seed=settings.seed,
        victims=verdict.victims,
        points=verdict.points,
        records=verdict.records,
        lost=len(verdict.lost),
        twice=len(verdict.repeated),
        disordered=len(verdict.disordered),
        different=len(verdict.different),
        errors=len(verdict.errors),
        resets=verdict.resets,
        unapplied=len(verdict.unapplied),
        savepoints=verdict.savepoints.count("complete"),
        cuts=verdict.savepoints.cuts,
        incomplete=len(verdict.savepoints.incomplete),
        forks=verdict.savepoints.forks,
        fork_rows=verdict.savepoints.rows,
        fork_differences=len(verdict.savepoints.differences),
        problems=len(verdict.savepoints.problems),
        command_kills=verdict.savepoints.kills(),
        anomalies=verdict.anomalies,
        took_s=took_s,
        stuck=tuple(verdict.stuck),
        invariants={name: it.to_text() for name, it in verdict.invariants.items()},
    )


def main() -> int:
    given = parser(__doc__).parse_args()
    settings = settings_of(given)
    holds = []
    campaigns = [(sink, it) for sink in given.sinks for it in protocols_of(settings, sink, given.protocols)]
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        if has_fault(settings, BROKER_FAULT):
            disk = SmallDisk(data_dir / "disk", BROKER_SIZE_MIB)
            stack.callback(disk.unmount)
            data_dir = disk.path
        kafka, secured = stack.enter_context(cluster_of(settings, data_dir))
        for sink, protocol in campaigns:
            holds.append(one(kafka, settings, sink, protocol, secured))
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
