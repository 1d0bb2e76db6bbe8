"""Runs one campaign: its queries, its producer, the faults and the verdict.

Used by ``integration_tests.campaign`` and by short campaigns in tests.
"""

from __future__ import annotations

import math
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from integration_tests.campaign.cluster_faults import ClusterFaults, Group, options_of
from integration_tests.campaign.compaction import COMPACTED_TOPIC, COMPACTION, paired_key
from integration_tests.campaign.fault import Fault
from integration_tests.campaign.faults import FaultInjector
from integration_tests.campaign.forks import Forks
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.input_topics import INPUT_PREFIX, InputTopics
from integration_tests.campaign.machines import Machine
from integration_tests.campaign.members import MASTER, CampaignMember, all_are_up, stopped
from integration_tests.campaign.network_faults import Network
from integration_tests.campaign.planted import Planted
from integration_tests.campaign.process_faults import faults_of_processes
from integration_tests.campaign.resets import MAX_BATCH, RequestedResets
from integration_tests.campaign.rotation import CONNECTION, ROTATION, Rotation
from integration_tests.campaign.savepoints import creation_of
from integration_tests.campaign.server_faults import faults_of_brokers, faults_of_servers
from integration_tests.campaign.settings import MAX_LAG_S
from integration_tests.campaign.single_processes import SingleProcesses
from integration_tests.campaign.storage import CampaignStorage
from integration_tests.campaign.targets import ReadBack, create
from integration_tests.campaign.turn_run import TurnRun
from integration_tests.campaign.turns import CURSORS, EXECUTOR_VICTIMS, LETTER_KINDS, STALL, Turn
from integration_tests.campaign.unclean_elections import UNCLEAN_ELECTION, create_with_two_replicas
from integration_tests.campaign.verdict import Verdict, judged, judged_by_order, without_the_rest
from integration_tests.campaign.windows import Resets
from integration_tests.campaign.zombies import Zombies
from integration_tests.secured_brokers import LOGIN, Listeners
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.reading import read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.waits import NotInTime, wait_until

#: The lease of a batch, if one hangs.
LEASE = "10s"


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
    max_lag_s: float = MAX_LAG_S,
    storage: CampaignStorage | None = None,
    report: Callable[[str], None] = lambda _: None,
    secured: Listeners | None = None,
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
        max_lag_s: the longest permitted time until the group has read all records, in seconds. The campaign waits twice as long,
            so that its history decides I8.
        storage: the storage of the queries, if it is a target of faults, or an object store.
        report: called with a description of each turn.
        secured: the listeners of the broker, if the queries log in.

    A campaign that does not settle has a verdict too: if no process reaches a point, or the queries do not read to the end
    (:attr:`Verdict.stuck`). Its history is checked as far as it goes.
    """
    victims = {victim for _, victim in turns}
    topic, group = f"{INPUT_PREFIX}{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    topics = InputTopics(bootstrap, kind, topic, group)
    if UNCLEAN_ELECTION in victims:
        create_with_two_replicas(bootstrap, topic)
    else:
        topics.create(COMPACTED_TOPIC if COMPACTION in victims else {})
    letters = f"letters-{uuid.uuid4().hex[:8]}" if kind in LETTER_KINDS else ""
    if letters:
        create(bootstrap, letters)
    machine = Machine(directory, turns, seed, kafka)
    history = CampaignHistory(directory, group, topic, sink, kind, max_lag_s)
    planted = Planted()
    target = storage.to if storage else to
    rotation = None
    if secured and ROTATION in victims:
        # No file of the directory of the campaign may contain a password.
        rotation = Rotation(secured, Path(tempfile.mkdtemp(prefix="campaign-login-")))
    settings = {**planted.settings, **(LOGIN if secured and not rotation else {})}
    if rotation:
        # The connection has the password.
        del settings["sasl.password"]
    to_members = secured.login if secured else bootstrap
    options = {
        **{f"kafka.{name}": value for name, value in settings.items()},
        **({"connection": CONNECTION} if rotation else {"kafka.bootstrap.servers": to_members}),
        "subscribe": ",".join(topics.names),
        "group.id": group,
        "kafka.group.protocol": protocol,
        "stateLocation": storage.state_location if storage and storage.is_remote else str(machine.storage / "states"),
        "historyDir": str(history.members),
        **_options_of(kind, protocol, victims),
    }
    config = {
        "bootstrap": to_members,
        "place": {"connection": CONNECTION} if rotation else {"bootstrap_servers": to_members},
        "sink": sink,
        "to": planted.conninfo(target) if sink == "postgres" else target,
        "storage_options": storage.storage_options if storage else {},
        "settings": settings,
        "environment": {**planted.environment, **(rotation.environment if rotation else {})},
        "options": options,
        "sabotaged": sabotaged,
        "kind": kind,
        "program": "integration_tests.campaign." + ("cursor_member" if kind == CURSORS else "query"),
        "between": topics.between,
        "reading_group": topics.reading_group,
        "letters": letters,
        "is_static": "duplicate-member" in victims,
    }
    last = MASTER if victims & {*EXECUTOR_VICTIMS} else "local[2]"
    *others, name = ("ann", "bob", "cem", "dan")[: 1 if kind == "stateful" else n_members]
    committed, ends = topics.committed, topics.ends
    network = Network(to_members, [*others, name], sorted(victims), committed)
    members = [
        CampaignMember(
            directory,
            it,
            network.connected(it, config),
            last if it == name else "local[2]",
            history.record,
            machine.storage,
            machine.environment(it),
        )
        for it in (*others, name)
    ]
    reset = [group, "--topic", topic, "-b", bootstrap, "--state-location", options["stateLocation"]]
    resets = Resets(reset, directory, history.reset)
    requested = RequestedResets(bootstrap, group, topic, seed, history.reset)
    of_group = Group(bootstrap, group, topic, protocol, to if sink == "kafka" else "", directory, committed, ends)
    cluster = ClusterFaults(of_group, members, kafka, history, topics.paused)
    if secured:
        cluster.secure(secured, rotation)
    see_to_all, deaths = partial(all_are_up, members), directory / "deaths"
    single = SingleProcesses(see_to_all, seed)
    zombies = Zombies(bootstrap, group, members, see_to_all, requested)
    injector = FaultInjector(deaths, members, single, zombies, requested, sink, history)
    injector.add(
        faults_of_processes(deaths, single, zombies),
        faults_of_servers(bootstrap, topic, to),
        faults_of_brokers(kafka) if kafka is not None else {},
        {"reset": reset_fault(resets, see_to_all, ends)},
        network.faults(victims, {it.name: it for it in members}, see_to_all),
        machine.faults(deaths, members, see_to_all),
        storage.faults(see_to_all) if storage else {},
        cluster.faults(),
    )
    creation = None
    if n_savepoints:
        creation = creation_of(options, directory, n_savepoints, seed, sabotaged, committed, report)
    now_s = time.monotonic()
    run = TurnRun(
        directory, kind, turns, injector, committed, creation, report, now_s + timeout_s, now_s + faults_s, Counter()
    )
    with closing(machine), closing(rotation) if rotation else nullcontext():
        stuck: list[str] = []
        observer = history.observer(bootstrap, to, topics.positions)
        try:
            with observer:
                injector.all_are_up()
                with (
                    topics.load(per_second, history, paired_key if COMPACTION in victims else str),
                    creation or nullcontext(),
                ):
                    if sabotaged or creation:
                        run.wait_for_first_batches(5 * per_second)
                    run.inject_all()
                topics.close_windows()
                run.wait_until_all_is_read(topics.is_all_read, 2 * max_lag_s)
        except NotInTime as e:
            stuck.append(str(e))
        finally:
            injector.give_up()
            stuck += stopped(members)
            network.close()
            if happened := network.counts():
                report(f"the proxies: {happened}")
            history.gather()
        if storage:
            storage.copy()
        # The positions after the last commit of the members.
        observer.finish()
        history.searched(planted.search(directory, rotation.passwords if rotation else {}))
        kills, errors = run.kills, injector.state_errors()
        n_records, n_right = (*topics.counts, 0, 0)[:2]
        try:
            found_letters = _letters(bootstrap, letters)
            arrived = read_back()
        except NotInTime as e:
            # Without the output, the history decides the invariants of the positions only.
            stuck.append(str(e))
            found = history.finish_without_output(errors)
            return Verdict(kills, n_records, stuck=stuck, report=found, history=history.file)
        if kind == "zombies":
            verdict = judged_by_order(kills, n_records, arrived, found_letters, requested)
        else:
            verdict = judged(kind, kills, n_records, arrived, resets.done, found_letters, n_right)
        verdict = cluster.judge(verdict, arrived)
        report(f"{cluster}; {sum(it.n_ended for it in members)} programs have ended by themselves")
        if stuck:
            verdict = without_the_rest(verdict, stuck)
        elif creation:
            forks = Forks(options, directory / "savepoints", directory, seed, report, creation.problems)
            verdict = replace(verdict, savepoints=forks.check(creation.attempts, n_records))
        found = history.finish(arrived, found_letters, n_records, errors, n_right)
        return replace(verdict, errors=errors, report=found, history=history.file)


def reset_fault(resets: Resets, see_to_all: Callable[[], bool], ends: Callable[[], dict[int, int]]) -> Fault:
    """A reset of the group by the command line, which begins while a process waits at its point.

    Args:
        resets: the resets.
        see_to_all: starts the members that are not running.
        ends: returns the end offsets of the partitions.
    """

    def finish(_: str, __: CampaignMember) -> None:
        wait_until(lambda: see_to_all() and resets.is_applied(ends), "the reset is applied", 240)

    return Fault(lambda _, __: resets.begin(), finish)


def _options_of(kind: str, protocol: str, victims: Set[str]) -> dict[str, str]:
    """The options of the source that do not depend on places."""
    return {
        "startingOffsets": "earliest",
        # With KIP-848 the broker configures the session timeout.
        **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
        "kafka.max.poll.interval.ms": "60000",
        "maxOffsetsPerTrigger": str(MAX_BATCH),
        **({"membership": "exclusive"} if kind == "stateful" else {}),
        # The partitions of both topics of a join with the same number have one owner.
        **({"kafka.group.remote.assignor": "range"} if kind == "join" else {}),
        **({"leaseTimeout": LEASE} if STALL in victims else {}),
        **options_of(victims),
    }


def _letters(bootstrap: str, topic: str) -> list[str]:
    """The values of the dead letters. An empty name is no topic."""
    if not topic:
        return []
    wait_until_no_transaction_is_open(bootstrap, topic)
    return [m.value.decode().rstrip(".") for m in read_committed(bootstrap, topic)]
