"""Fault injection campaigns: faults at named points of running queries, and independent readers that count the output.

Run as ``python -m integration_tests.campaign kafka --kills 100``; ``test_killed_in_the_middle_of_a_commit`` runs a
short one. Two queries share a group and write exactly once. ``sg.supervise`` runs each in a separate process, the
second on separate executors, while a producer appends records.

In each turn the campaign arms a point (``dying/sitecustomize.py``). The first process that reaches the point waits
there, and the campaign injects one fault (``campaign_turns``). At the end an independent reader checks that every record
arrived once and in the order of its partition.

A stateful query (``--kind stateful``) is the only member of its group, and drops the records that its state contains. If
its state is ahead of the output, records are lost; if it is behind, records arrive twice. Queries with windows (``--kind
windows``) share a group and its state: ``campaign_windows`` compares their output with a plain count. With ``--kind
savepoints`` savepoints of them are created meanwhile (``campaign_savepoints``), and ``campaign_forks`` compares forks. Queries of ``--kind
zombies`` sleep at writes of positions (``campaign_zombies``) while resets are applied: ``campaign_resets`` checks the order of
their output. Source: SEMANTICS C3, F1-F3, G8, X1-X4, S10.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.campaign_faults import MASTER, CampaignMember, FaultInjector
from integration_tests.campaign_forks import Forks
from integration_tests.campaign_history import CampaignHistory
from integration_tests.campaign_record import keep
from integration_tests.campaign_resets import MAX_BATCH, RequestedResets
from integration_tests.campaign_results import Result, here
from integration_tests.campaign_savepoints import creation_of
from integration_tests.campaign_settings import Settings, parser, replay_command, settings_of, turns_of
from integration_tests.campaign_shrinking import shrunk
from integration_tests.campaign_targets import ReadBack, create, patiently, target
from integration_tests.campaign_turns import WINDOWS_KINDS, Turn
from integration_tests.campaign_verdict import Verdict, judged, judged_by_order
from integration_tests.campaign_windows import (
    CLOSING,
    PARTITIONS,
    TOPIC_CONFIG,
    Resets,
    key_of,
    time_ms_of,
)
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.reading import (
    committed_offsets,
    end_offsets,
    read_committed,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.waits import wait_until

#: The timeout of a fault and of reading to the end, in seconds. On a busy machine a query with executors starts in minutes.
_STEP_S = 600


def campaign(
    bootstrap: str,
    directory: Path,
    sink: str,
    to: str,
    read_back: ReadBack,
    *,
    turns: Sequence[Turn],
    timeout_s: float,
    faults_s: float = math.inf,
    per_second: int = 400,
    protocol: str = "classic",
    sabotaged: str = "",
    n_members: int = 2,
    kind: str = "stateless",
    kafka: EmbeddedKafka | None = None,
    seed: int = 1,
    n_savepoints: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Runs a campaign.

    Args:
        bootstrap: the broker.
        directory: the directory of checkpoints and logs.
        sink: ``kafka``, ``postgres`` or ``delta``.
        to: the output topic, connection string or table path.
        read_back: the independent reader of the output.
        turns: the points and their faults, in order.
        timeout_s: the timeout of the whole campaign, in seconds.
        faults_s: the time after which no more faults are injected, in seconds.
        per_second: the rate of the producer, in records per second.
        protocol: the group protocol.
        sabotaged: one of ``SABOTAGES``, ``STATE_SABOTAGES`` or ``SAVEPOINT_SABOTAGES``, or empty.
        n_members: the number of queries, at most four. A single one reaches each point.
        kind: one of ``KINDS``. A stateful query is the only member of its group.
        kafka: the broker, if it is a target of faults.
        seed: the seed of the targets of resets, and of the points of commands.
        n_savepoints: the number of complete savepoints, with ``kind="savepoints"``.
        report: called with a description of each turn.

    Raises:
        AssertionError: if no process reaches a point, or the queries do not read to the end.
    """
    topic, group = f"in-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    has_windows = kind in WINDOWS_KINDS
    create(bootstrap, topic, TOPIC_CONFIG if has_windows else {})
    letters = f"letters-{uuid.uuid4().hex[:8]}" if kind == "zombies" else ""
    if letters:
        create(bootstrap, letters)
    history = CampaignHistory(directory, group, topic, sink, kind, _STEP_S)
    record: dict[str, Any] = {"key_of": key_of, "time_ms_of": time_ms_of} if has_windows else {}
    record["on_acknowledged"] = history.inputs.acknowledged
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingOffsets": "earliest",
        "kafka.group.protocol": protocol,
        # With KIP-848 the broker configures the session timeout.
        **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
        "kafka.max.poll.interval.ms": "60000",
        "maxOffsetsPerTrigger": str(MAX_BATCH),
        "stateLocation": str(directory / "states"),
        "historyDir": str(history.members),
        **({"membership": "exclusive"} if kind == "stateful" else {}),
    }
    config = {
        "bootstrap": bootstrap,
        "sink": sink,
        "to": to,
        "options": options,
        "sabotaged": sabotaged,
        "kind": "windows" if has_windows else kind,
        "letters": letters,
    }
    last = MASTER if any(victim == "executor" for _, victim in turns) else "local[2]"
    *others, name = ("ann", "bob", "cem", "dan")[: 1 if kind == "stateful" else n_members]
    members = [CampaignMember(directory, it, config, record=history.record) for it in others]
    members.append(CampaignMember(directory, name, config, last, history.record))
    reset = [group, "--topic", topic, "-b", bootstrap, "--state-location", options["stateLocation"]]
    resets = Resets(reset, directory, history.reset)
    ends = partial(patiently, partial(end_offsets, bootstrap, topic, PARTITIONS))
    committed = partial(patiently, partial(committed_offsets, bootstrap, group, topic))
    requested = RequestedResets(bootstrap, group, topic, seed, history.reset)
    injector = FaultInjector(
        bootstrap, directory / "deaths", group, topic, members, kafka, resets, ends, requested, sink, to, history
    )
    kills = Counter[Turn]()
    creation = None
    if n_savepoints:
        creation = creation_of(options, directory, n_savepoints, seed, sabotaged, committed, report)
    deadline_s = time.monotonic() + timeout_s
    last_fault_s = time.monotonic() + faults_s

    def left_s() -> float:
        return max(1.0, deadline_s - time.monotonic())

    observer = history.observer(bootstrap, to, committed)
    try:
        with observer:
            injector.all_are_up()
            load = Load(bootstrap, topic, partitions=PARTITIONS, per_second=per_second, **record)
            with load, creation or nullcontext():
                if sabotaged or creation:
                    # Before the first batches are written, a disabled safeguard has no effect, and a savepoint no content.
                    wait_until(
                        lambda: (
                            injector.all_are_up()
                            and (sum(committed().values()) > 5 * per_second or injector.state_errors())
                        ),
                        f"the first batches are written; see {directory}",
                        min(_STEP_S, left_s()),
                    )
                if kind == "zombies":
                    injector.until_all_own()
                for turn, (point, victim) in enumerate(turns, 1):
                    if creation:
                        creation.permit(turn / (len(turns) + 1))
                    began_s = time.monotonic()
                    if kind == "zombies":
                        injector.inject_zombie(
                            point, with_reset=victim == "zombie-reset", timeout_s=min(_STEP_S, left_s())
                        )
                    elif not injector.inject(point, victim, min(_STEP_S, left_s())):
                        break
                    kills[point, victim] += 1
                    report(f"{kills.total()}: {point}, {victim}, {time.monotonic() - began_s:.1f} s")
                    if time.monotonic() > last_fault_s:
                        break
                if creation:
                    creation.permit(1)
                    wait_until(
                        lambda: injector.all_are_up() and creation.is_done,
                        "the savepoints are complete",
                        left_s(),
                    )
            if has_windows:
                produce(bootstrap, topic, PARTITIONS, partitions=PARTITIONS, first=CLOSING, **record)
            wait_until(
                lambda: injector.all_are_up() and (ends().items() <= committed().items() or injector.state_errors()),
                f"all is read; see {directory}",
                min(_STEP_S, left_s()),
            )
    finally:
        injector.give_up()
        for member in members:
            member.stop()
        history.gather()
    # The positions after the last commit of the members.
    observer.finish()
    found_letters: list[str] = []
    if letters:
        wait_until_no_transaction_is_open(bootstrap, letters)
        found_letters = [m.value.decode().rstrip(".") for m in read_committed(bootstrap, letters)]
    arrived = read_back()
    if kind == "zombies":
        verdict = judged_by_order(kills, load.count, arrived, found_letters, requested)
    else:
        verdict = judged(kind, kills, load.count, arrived, resets.done)
    if creation:
        forks = Forks(options, directory / "savepoints", directory, seed, report, creation.problems)
        verdict = replace(verdict, savepoints=forks.check(creation.attempts, load.count))
    errors = injector.state_errors()
    found = history.finish(arrived, found_letters, load.count, errors)
    return replace(verdict, errors=errors, report=found, history=history.file)


def one(kafka: EmbeddedKafka, settings: Settings, sink: str, protocol: str) -> bool:
    """Runs one campaign and stores its result; returns whether the output is right. Shrinks a failure if that is requested."""
    turns, holds = turns_of(settings, sink, protocol), False
    try:
        holds = _run(kafka, settings, sink, protocol, turns).holds
    finally:
        if not holds:
            print(f"To repeat it: {replay_command(settings, sink, protocol)}", flush=True)
    if not holds and settings.is_shrunk:

        def fails(fewer: Sequence[Turn]) -> bool:
            try:
                return not _run(kafka, settings, sink, protocol, fewer).holds
            except AssertionError as e:
                # A point can be out of reach without the faults before it.
                print(f"not decided: {e}", file=sys.stderr, flush=True)
                return False

        necessary = shrunk(turns, fails, max_runs=settings.max_shrink_runs)
        command = replay_command(replace(settings, turns=tuple(necessary)), sink, protocol)
        print(f"{len(necessary)} of {len(turns)} faults are enough: {command}", flush=True)
    return holds


def _run(kafka: EmbeddedKafka, settings: Settings, sink: str, protocol: str, turns: Sequence[Turn]) -> Verdict:
    """Runs the turns, prints the verdict and stores the result."""
    directory = Path(tempfile.mkdtemp(prefix=f"campaign-{sink}-"))
    began_s, kind = time.monotonic(), settings.kind
    with target(sink, kafka.bootstrap_servers, directory) as (to, read_back):
        verdict = campaign(
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
            report=partial(print, file=sys.stderr, flush=True),
        )
    took_s = round(time.monotonic() - began_s)
    result = _result(kafka.version, settings, sink, protocol, verdict, took_s)
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
    )


def main() -> int:
    from streamgroups_testkit.broker import BROKER_PROPERTIES

    given = parser(__doc__).parse_args()
    settings = settings_of(given)
    holds = []
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        kafka = stack.enter_context(
            EmbeddedKafka(
                settings.n_nodes, version=settings.kafka_version, data_dir=data_dir, properties=BROKER_PROPERTIES
            )
        )
        for sink in given.sinks:
            for protocol in given.protocols:
                holds.append(one(kafka, settings, sink, protocol))
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
