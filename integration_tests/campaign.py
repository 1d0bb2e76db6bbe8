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

import argparse
import math
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.campaign_faults import MASTER, CampaignMember, FaultInjector
from integration_tests.campaign_forks import Forks
from integration_tests.campaign_resets import MAX_BATCH, RequestedResets, order_of, wrong_letters
from integration_tests.campaign_results import Result, here
from integration_tests.campaign_savepoints import SavepointResults, creation_of
from integration_tests.campaign_targets import ReadBack, create, patiently, target
from integration_tests.campaign_turns import (
    KINDS,
    SABOTAGES,
    SAVEPOINT_SABOTAGES,
    STATE_SABOTAGES,
    VICTIMS_OF,
    WINDOWS_KINDS,
    WINDOWS_VICTIMS,
    Turn,
    all_turns,
    revealing_turns,
    zombie_turns,
)
from integration_tests.campaign_windows import (
    CLOSING,
    PARTITIONS,
    TOPIC_CONFIG,
    Reset,
    Resets,
    compare,
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


@dataclass
class Verdict:
    """The result of a campaign.

    Args:
        kills: how often each fault was injected at each point.
        records: the number of records that were produced.
        lost: the records that did not arrive.
        repeated: the records that arrived more than once.
        disordered: partitions whose records did not arrive in order.
        different: of windows: the rows with another result. ``lost`` and ``repeated`` are then rows too.
        errors: the errors of a state.
        resets: the number of requested resets to known positions.
        unapplied: those that begin no run of the output, by partition.
        savepoints: the savepoints and their forks.
    """

    kills: Counter[Turn]
    records: int
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    resets: int = 0
    unapplied: list[str] = field(default_factory=list)
    savepoints: SavepointResults = field(default_factory=SavepointResults)

    @property
    def holds(self) -> bool:
        found = (self.lost, self.repeated, self.disordered, self.different, self.errors, self.unapplied)
        return not any((*found, self.savepoints.differences, self.savepoints.problems))

    @property
    def victims(self) -> dict[str, int]:
        """How often each fault was injected."""
        return dict(Counter(victim for _, victim in self.kills.elements()))

    @property
    def points(self) -> dict[str, int]:
        """How often a fault was injected at each point."""
        return dict(Counter(point for point, _ in self.kills.elements()))

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills {self.victims} {self.points}, {self.records} records, "
            f"{len(self.lost)} lost{_from_to(self.lost)}, {len(self.repeated)} twice{_from_to(self.repeated)}, "
            f"{len(self.different)} different{_from_to(self.different)}, "
            f"partitions out of order: {self.disordered or 'none'}, errors of states: {self.errors or 'none'}, "
            f"{self.resets} resets, not applied: {self.unapplied or 'none'}"
        )


def _from_to(values: Sequence[str]) -> str:
    """The first and last of the affected records or rows, for the search in the logs."""
    return f" (between {values[0]} and {values[-1]})" if values else ""


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
    record: dict[str, Any] = {"key_of": key_of, "time_ms_of": time_ms_of} if has_windows else {}
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
    members = [*(CampaignMember(directory, it, config) for it in others), CampaignMember(directory, name, config, last)]
    reset = [group, "--topic", topic, "-b", bootstrap, "--state-location", options["stateLocation"]]
    resets = Resets(reset, directory)
    ends = partial(patiently, partial(end_offsets, bootstrap, topic, PARTITIONS))
    committed = partial(patiently, partial(committed_offsets, bootstrap, group, topic))
    requested = RequestedResets(bootstrap, group, topic, seed)
    injector = FaultInjector(bootstrap, directory / "deaths", group, members, kafka, resets, ends, requested, sink)
    kills = Counter[Turn]()
    creation = None
    if n_savepoints:
        creation = creation_of(options, directory, n_savepoints, seed, sabotaged, committed, report)
    deadline_s = time.monotonic() + timeout_s
    last_fault_s = time.monotonic() + faults_s

    def left_s() -> float:
        return max(1.0, deadline_s - time.monotonic())

    try:
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
                    injector.inject_zombie(point, with_reset=victim == "zombie-reset", timeout_s=min(_STEP_S, left_s()))
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
            lambda: injector.all_are_up() and (committed() == ends() or injector.state_errors()),
            f"all is read; see {directory}",
            min(_STEP_S, left_s()),
        )
    finally:
        injector.give_up()
        for member in members:
            member.stop()
    if kind == "zombies":
        wait_until_no_transaction_is_open(bootstrap, letters)
        found_letters = [m.value.decode().rstrip(".") for m in read_committed(bootstrap, letters)]
        verdict = _judged_by_order(kills, load.count, read_back(), found_letters, requested)
    else:
        verdict = _judged(kind, kills, load.count, read_back(), resets.done)
    if creation:
        forks = Forks(options, directory / "savepoints", directory, seed, report, creation.problems)
        verdict = replace(verdict, savepoints=forks.check(creation.attempts, load.count))
    return replace(verdict, errors=injector.state_errors())


def _judged(
    kind: str, kills: Counter[Turn], n_records: int, arrived: list[tuple[int, str]], resets: Sequence[Reset]
) -> Verdict:
    if kind in WINDOWS_KINDS:
        found = compare((value for _, value in arrived), n_records, resets)
        return Verdict(kills, n_records, found.missing, found.repeated, different=found.different)
    expected = {str(i) for i in range(n_records)}
    values = Counter(value for _, value in arrived)
    in_order: dict[int, list[int]] = {}
    for partition, value in arrived:
        in_order.setdefault(partition, []).append(int(value))
    return Verdict(
        kills,
        n_records,
        lost=sorted(expected - values.keys(), key=int),
        repeated=sorted((value for value, n in values.items() if n > 1), key=int),
        # Spark processes grouped records in no defined order.
        disordered=sorted(p for p, numbers in in_order.items() if kind != "stateful" and numbers != sorted(numbers)),
    )


def _judged_by_order(
    kills: Counter[Turn],
    n_records: int,
    arrived: Sequence[tuple[int, str]],
    letters: Sequence[str],
    requested: RequestedResets,
) -> Verdict:
    found = order_of(arrived, n_records, requested.done, letters=True)
    lost, repeated = wrong_letters(found, letters, n_records)
    return Verdict(
        kills,
        n_records,
        lost=found.lost + lost,
        repeated=found.repeated + repeated,
        resets=requested.n_requests,
        unapplied=found.unapplied,
    )


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    kills: int
    victims: Sequence[str]
    sabotaged: str
    n_members: int
    seed: int
    timeout_s: float
    faults_s: float
    results: Path | None
    n_resets: int
    n_savepoints: int
    per_second: int


def one(kafka: EmbeddedKafka, settings: Settings, sink: str, protocol: str, kind: str) -> bool:
    """Runs one campaign and stores its result; returns whether the output is right."""
    directory = Path(tempfile.mkdtemp(prefix=f"campaign-{sink}-"))
    if settings.sabotaged:
        turns = revealing_turns(sink, settings.sabotaged, settings.kills)
    elif kind == "zombies":
        # The campaigns with both protocols have other points.
        skipped = settings.kills if protocol == "consumer" else 0
        turns = zombie_turns(sink, settings.kills, settings.n_resets, settings.seed, skipped=skipped)
    else:
        possible = [victim for victim in settings.victims if victim in VICTIMS_OF[kind]]
        turns = all_turns(sink, settings.kills, possible, settings.seed, kind)
    began_s = time.monotonic()
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
    day, commit, versions = here(kafka.version)
    result = Result(
        day=day,
        commit=commit,
        versions=versions,
        sink=sink,
        protocol=protocol,
        kind=kind,
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
        took_s=round(time.monotonic() - began_s),
    )
    if settings.results is not None:
        with settings.results.open("a") as file:
            file.write(result.to_line() + "\n")
    what = f"{sink}, {kind}, {protocol}, {settings.sabotaged or 'nothing'} taken away"
    print(f"{what}, seed {settings.seed}, {result.took_s} s: {verdict}", flush=True)
    if kind == "savepoints":
        print(verdict.savepoints.to_text(verdict.victims), flush=True)
    return verdict.holds


def main() -> int:
    from streamgroups_testkit.broker import BROKER_PROPERTIES

    sinks, protocols = ["kafka", "postgres", "delta"], ["classic", "consumer"]
    parser = argparse.ArgumentParser(prog="python -m integration_tests.campaign", description=__doc__)
    parser.add_argument("sinks", nargs="+", choices=sinks)
    parser.add_argument("--kills", type=int, default=100, help="for each sink and protocol")
    parser.add_argument("--protocols", nargs="+", choices=protocols, default=protocols, help="of the group")
    parser.add_argument("--kind", choices=KINDS, default="stateless", help="of the queries")
    parser.add_argument("--members", type=int, choices=(1, 2, 3, 4), default=2, help="the number of queries")
    parser.add_argument(
        "--faults", nargs="+", choices=WINDOWS_VICTIMS, default=WINDOWS_VICTIMS, help="what happens at the points"
    )
    parser.add_argument(
        "--resets", type=int, default=0, help="of the group; with --kind zombies, for each sink and protocol"
    )
    parser.add_argument(
        "--sabotaged",
        choices=(*SABOTAGES, *STATE_SABOTAGES, *SAVEPOINT_SABOTAGES),
        default="",
        help="take it away: the campaign must notice",
    )
    parser.add_argument(
        "--savepoints", type=int, default=15, help="complete ones, for each sink and protocol; with --kind savepoints"
    )
    parser.add_argument(
        "--nodes", type=int, choices=(1, 2, 3), default=1, help="of the cluster; they are killed in turn"
    )
    parser.add_argument("--per-second", type=int, default=400, help="the rate of the producer, in records")
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for each sink and protocol")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of faults, for each sink and protocol")
    parser.add_argument("--results", type=Path, help="a file; the result of each campaign is added as one line")
    given = parser.parse_args()
    requested = Settings(
        given.kills,
        given.faults,
        given.sabotaged,
        given.members,
        given.seed,
        given.timeout,
        given.minutes * 60,
        given.results,
        given.resets,
        given.savepoints,
        given.per_second,
    )
    holds = []
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        kafka = stack.enter_context(EmbeddedKafka(given.nodes, data_dir=data_dir, properties=BROKER_PROPERTIES))
        for sink in given.sinks:
            for protocol in given.protocols:
                holds.append(one(kafka, requested, sink, protocol, given.kind))
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
