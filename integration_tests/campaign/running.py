"""Runs one campaign: its queries, its producer, the faults and the verdict.

Used by ``integration_tests.campaign`` and by short campaigns in tests.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

from integration_tests.campaign.cluster_faults import ClusterFaults, Group
from integration_tests.campaign.compaction import COMPACTED_TOPIC, COMPACTION, paired_key
from integration_tests.campaign.fault import Fault
from integration_tests.campaign.faults import FaultInjector
from integration_tests.campaign.forks import Forks
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.input_topics import INPUT_PREFIX, InputTopics
from integration_tests.campaign.machines import Machine
from integration_tests.campaign.members import MASTER, CampaignMember, all_are_up, stopped
from integration_tests.campaign.network_faults import Network
from integration_tests.campaign.plan import Plan, unexplained_ends
from integration_tests.campaign.process_faults import faults_of_processes
from integration_tests.campaign.queries import QueryConfig
from integration_tests.campaign.resets import RequestedResets
from integration_tests.campaign.savepoints import Creation, creation_of
from integration_tests.campaign.server_faults import faults_of_brokers, faults_of_servers
from integration_tests.campaign.single_processes import SingleProcesses
from integration_tests.campaign.targets import create
from integration_tests.campaign.turn_run import TurnRun
from integration_tests.campaign.turns import EXECUTOR_VICTIMS, LETTER_KINDS
from integration_tests.campaign.unclean_elections import UNCLEAN_ELECTION, create_with_two_replicas
from integration_tests.campaign.verdict import Verdict, judged, judged_by_order, without_the_rest
from integration_tests.campaign.windows import Resets
from integration_tests.campaign.zombies import Zombies
from integration_tests.history.observer import Observer
from streamgroups_testkit.reading import read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.waits import NotInTime, wait_until


def campaign(plan: Plan) -> Verdict:
    """Runs a campaign.

    A campaign that does not settle has a verdict too: if no process reaches a point, or the queries do not read to the end
    (:attr:`Verdict.stuck`). Its history is checked as far as it goes.
    """
    return _Campaign(plan).run()


class _Campaign:
    """The topics, the queries and the faults of one campaign. All names are new."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._topic, self._group = f"{INPUT_PREFIX}{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
        self._topics = InputTopics(plan.bootstrap, plan.kind, self._topic, self._group)
        if UNCLEAN_ELECTION in plan.faults:
            create_with_two_replicas(plan.bootstrap, self._topic)
        else:
            self._topics.create(COMPACTED_TOPIC if COMPACTION in plan.faults else {})
        self._letters = f"letters-{uuid.uuid4().hex[:8]}" if plan.kind in LETTER_KINDS else ""
        if self._letters:
            create(plan.bootstrap, self._letters)
        self._machine = Machine(plan.directory, plan.turns, plan.seed, plan.kafka)
        self._history = CampaignHistory(plan.directory, self._group, self._topic, plan.sink, plan.kind, plan.max_lag_s)
        self._config = QueryConfig(plan, self._topics, self._group, self._letters, self._machine, self._history)
        self._network = Network(self._config.bootstrap, plan.member_names, sorted(plan.faults), self._topics.committed)
        self._members = [self._new_member(name) for name in plan.member_names]
        self._see_to_all = partial(all_are_up, self._members)
        reset = [self._group, "--topic", self._topic, "-b", plan.bootstrap]
        reset += ["--state-location", self._config.options["stateLocation"]]
        self._resets = Resets(reset, plan.directory, self._history.reset)
        self._requested = RequestedResets(plan.bootstrap, self._group, self._topic, plan.seed, self._history.reset)
        self._cluster = self._cluster_faults()
        self._injector = self._new_injector()

    def _new_member(self, name: str) -> CampaignMember:
        plan, machine = self._plan, self._machine
        has_executors = name == plan.member_names[-1] and plan.faults & {*EXECUTOR_VICTIMS}
        return CampaignMember(
            plan.directory,
            name,
            self._network.connected(name, self._config.to_json()),
            MASTER if has_executors else "local[2]",
            self._history.record,
            machine.storage,
            machine.environment(name),
        )

    def _cluster_faults(self) -> ClusterFaults:
        plan, topics = self._plan, self._topics
        group = Group(
            plan.bootstrap,
            self._group,
            self._topic,
            plan.protocol,
            plan.to if plan.sink == "kafka" else "",
            plan.directory,
            topics.committed,
            topics.ends,
        )
        cluster = ClusterFaults(group, self._members, plan.kafka, self._history, topics.paused)
        if plan.secured:
            cluster.secure(plan.secured, self._config.rotation)
        return cluster

    def _new_injector(self) -> FaultInjector:
        plan, deaths, members = self._plan, self._plan.directory / "deaths", self._members
        single = SingleProcesses(self._see_to_all, plan.seed)
        zombies = Zombies(plan.bootstrap, self._group, self._topic, members, self._see_to_all, self._requested)
        injector = FaultInjector(deaths, members, single, zombies, self._requested, plan.sink, self._history)
        injector.add(
            faults_of_processes(deaths, single, zombies),
            faults_of_servers(plan.bootstrap, self._topic, plan.to),
            faults_of_brokers(plan.kafka) if plan.kafka is not None else {},
            {"reset": reset_fault(self._resets, self._see_to_all, self._topics.ends)},
            self._network.faults(plan.faults, {it.name: it for it in members}, self._see_to_all),
            self._machine.faults(deaths, members, self._see_to_all),
            plan.storage.faults(self._see_to_all) if plan.storage else {},
            self._cluster.faults(),
        )
        return injector

    def run(self) -> Verdict:
        """Runs the turns, stops the queries, and judges their output."""
        plan, topics = self._plan, self._topics
        creation = None
        if plan.n_savepoints:
            creation = creation_of(
                self._config.options,
                plan.directory,
                plan.n_savepoints,
                plan.seed,
                plan.sabotaged,
                topics.committed,
                plan.report,
            )
        with closing(self._machine), closing(self._config):
            observer = self._history.observer(plan.bootstrap, plan.to, topics.positions)
            turns, stuck = self._inject_all(observer, creation)
            if plan.storage:
                plan.storage.copy()
            # The positions after the last commit of the members.
            observer.finish()
            passwords = self._config.rotation.passwords if self._config.rotation else {}
            self._history.searched(self._config.planted.search(plan.directory, passwords))
            verdict = self._judged(turns.kills, stuck, creation)
            return replace(verdict, n_given_up=self._unexplained_ends(turns))

    def _inject_all(self, observer: Observer, creation: Creation | None) -> tuple[TurnRun, list[str]]:
        """Returns the turns with the injected faults, and what did not happen in time."""
        plan, topics, now_s = self._plan, self._topics, time.monotonic()
        run = TurnRun(
            plan.directory,
            plan.kind,
            plan.turns,
            self._injector,
            topics.committed,
            creation,
            plan.report,
            now_s + plan.timeout_s,
            now_s + plan.faults_s,
            Counter(),
            self._n_ended,
        )
        stuck: list[str] = []
        try:
            with observer:
                self._injector.all_are_up()
                key = paired_key if COMPACTION in plan.faults else str
                with topics.load(plan.per_second, self._history, key), creation or nullcontext():
                    if plan.sabotaged or creation:
                        run.wait_for_first_batches(5 * plan.per_second)
                    run.inject_all()
                topics.close_windows()
                run.wait_until_all_is_read(topics.is_all_read, 2 * plan.max_lag_s)
        except NotInTime as e:
            stuck.append(str(e))
        finally:
            self._injector.give_up()
            stuck += stopped(self._members)
            self._network.close()
            if happened := self._network.counts():
                plan.report(f"the proxies: {happened}")
            self._history.gather()
        return run, stuck

    def _n_ended(self) -> int:
        return sum(it.n_ended for it in self._members)

    def _unexplained_ends(self, turns: TurnRun) -> int:
        """The programs that have ended by themselves without a reason. With a disabled safeguard each of them has one."""
        self._plan.report(f"{self._n_ended()} programs have ended by themselves")
        return 0 if self._plan.sabotaged else unexplained_ends(turns.began, self._n_ended())

    def _judged(self, kills: Counter[tuple[str, str]], stuck: list[str], creation: Creation | None) -> Verdict:
        plan, history, cluster = self._plan, self._history, self._cluster
        errors = self._injector.state_errors()
        n_records, n_right = (*self._topics.counts, 0, 0)[:2]
        try:
            letters = _letters(plan.bootstrap, self._letters)
            arrived = plan.read_back()
        except NotInTime as e:
            # Without the output, the history decides the invariants of the positions only.
            stuck.append(str(e))
            found = history.finish_without_output(errors)
            return Verdict(kills, n_records, stuck=stuck, report=found, history=history.file)
        if plan.kind == "zombies":
            verdict = judged_by_order(kills, n_records, arrived, letters, self._requested)
        else:
            verdict = judged(plan.kind, kills, n_records, arrived, self._resets.done, letters, n_right)
        verdict = cluster.judge(verdict, arrived)
        plan.report(str(cluster))
        if stuck:
            verdict = without_the_rest(verdict, stuck)
        elif creation:
            savepoints = plan.directory / "savepoints"
            forks = Forks(self._config.options, savepoints, plan.directory, plan.seed, plan.report, creation.problems)
            verdict = replace(verdict, savepoints=forks.check(creation.attempts, n_records))
        found = history.finish(arrived, letters, n_records, errors, n_right)
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


def _letters(bootstrap: str, topic: str) -> list[str]:
    """The values of the dead letters. An empty name is no topic."""
    if not topic:
        return []
    wait_until_no_transaction_is_open(bootstrap, topic)
    return [m.value.decode().rstrip(".") for m in read_committed(bootstrap, topic)]
