"""The scenario of the demo: a broker, a topic of flights, two queries, a kill, a third query, the shutdown.

Called by ``demo.__main__``. Every wait has a timeout, and fails if a query ends that the demo did not kill.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from demo.flights import Loader, all_flights
from demo.live import LiveView
from demo.output import Output, collect
from demo.processes import Folders, Query
from streamgroups.groups.history import Event
from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import decode
from streamgroups_admin.reports.ownership import Mark, MarkKind
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.history_file import read_history
from streamgroups_operators.file_format import unpack
from streamgroups_operators.inspection import inspect
from streamgroups_operators.locations import files_below
from streamgroups_testkit.reading import read_committed

TOPIC, GROUP, PARTITIONS = "flights", "flight-board", 8
OUTPUT_TOPIC, OUTPUT_PARTITIONS = "airport-delays", 2
#: The session timeout of both protocols: the group detects a killed member after it.
_SESSION_MS = 6_000
#: The limit of a batch, so that each query has several.
_MAX_OFFSETS = 10_000
#: The duration of loading a third of the flights.
_LOADING_S = 15.0
#: The work of both queries before one is killed.
_BATCHES_BEFORE_KILL, _SECONDS_BEFORE_KILL = 4, 5.0
_START_TIMEOUT_S = 180.0
_END_TIMEOUT_S = 180.0


class DemoFailed(Exception):
    """The demo cannot continue; the message has the reason."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The results of the scenario.

    Args:
        events: the histories of the members.
        marks: the starts, stops and kills.
        ends: the topic's end offsets.
        committed: the group's offsets.
        killed: the killed member.
        states: the sizes of the states of the windows, by partition and offset.
        output: the rows that the queries have written.
    """

    events: Sequence[Event]
    marks: Sequence[Mark]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    killed: str
    states: Mapping[tuple[TopicPartition, int], StateSize]
    output: Output


def run(console: Console, folders: Folders, protocol: str, began_s: float) -> DemoRun:
    """Runs the scenario. No process remains after it, even after an error.

    Raises:
        DemoFailed: if a step timed out, or a query ended unexpectedly.
    """
    properties = {
        "group.consumer.session.timeout.ms": _SESSION_MS,
        "group.consumer.heartbeat.interval.ms": 1_000,
    }
    with console.status("Starting a Kafka broker"), contextlib.ExitStack() as starting:
        kafka = starting.enter_context(EmbeddedKafka(properties=properties))
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(OUTPUT_TOPIC, OUTPUT_PARTITIONS, 1)]
        for created in admin.create_topics(topics).values():
            created.result(30)
        broker = starting.pop_all()
    with broker:
        try:
            return _Demo(console, folders, kafka, protocol).play(began_s)
        finally:
            with contextlib.suppress(OSError):
                shutil.copyfile(kafka.log_path(), folders.logs / "broker.log")


class _Demo:
    def __init__(self, console: Console, folders: Folders, kafka: EmbeddedKafka, protocol: str) -> None:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "group.id": GROUP,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(_MAX_OFFSETS),
            "kafka.group.protocol": protocol,
        }
        if protocol == "classic":
            options["kafka.session.timeout.ms"] = str(_SESSION_MS)
        self._console, self._folders, self._kafka = console, folders, kafka
        self._bootstrap = kafka.bootstrap_servers
        self._alice, self._bob = (Query(name, folders, options, OUTPUT_TOPIC) for name in ("alice", "bob"))
        self._carol = Query("carol", folders, options, OUTPUT_TOPIC, replaces=self._bob)
        self._states = files_below(str(folders.states), GROUP, "windows")
        self._marks: list[Mark] = []
        self._expected_dead: set[str] = set()
        self._seen: set[StateFileName] = set()

    def play(self, began_s: float) -> DemoRun:
        """Runs from the first query to the last commit."""
        cluster = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": self._bootstrap, "log_level": "0"}))
        partitions = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        try:
            self._start_first()
            self._loader = Loader(self._bootstrap, TOPIC, PARTITIONS, all_flights())
            with LiveView(
                self._console, cluster, GROUP, partitions, self._folders.history, self._loader.total, began_s
            ) as self._view:
                self._share()
                self._kill_one()
                self._finish()
            ends, committed = cluster.end_offsets(partitions), cluster.committed(GROUP, partitions)
            output = collect(record.value for record in read_committed(self._bootstrap, OUTPUT_TOPIC))
        finally:
            self._clean_up()
        events = read_history(self._folders.history)
        at = {tp: position.next_offset for tp, position in committed.items()}
        states = inspect(self._states).state_sizes
        return DemoRun(events, self._marks, ends, at, self._bob.name, states, output)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def _start_first(self) -> None:
        for query in (self._alice, self._bob):
            self._mark(MarkKind.START, f"start {query.name}", query)
            query.start()

    def _share(self) -> None:
        view, loader = self._view, self._loader
        view.states.update({"alice": "starts", "bob": "starts"})
        view.print_event(f"broker at {self._bootstrap}; two queries are starting in group '{GROUP}': alice and bob")
        loader.load(loader.total // 3)
        view.print_event(
            f"{loader.loaded:,} of {loader.total:,} flights are in topic '{TOPIC}', {PARTITIONS} partitions"
        )
        self._wait(
            lambda: min(self._owns(self._alice), self._owns(self._bob)) > 0, "each to own partitions", _START_TIMEOUT_S
        )
        # The first query may have read all flights before partitions are assigned to the second.
        self._load_until(2 / 3)
        for query in (self._alice, self._bob):
            self._wait(lambda q=query: q.batches() >= 1, f"the first batch of {query.name}", _START_TIMEOUT_S)  # type: ignore[misc]
            view.states[query.name] = "reads"
        view.print_event("alice and bob share the partitions; loading continues")

    def _kill_one(self) -> None:
        bob, carol, view = self._bob, self._carol, self._view
        least, earliest_s = bob.batches() + _BATCHES_BEFORE_KILL, time.monotonic() + _SECONDS_BEFORE_KILL
        self._wait(
            lambda: time.monotonic() >= earliest_s and (bob.batches() >= least or view.snapshot.finished),
            f"{least} batches of bob",
            _START_TIMEOUT_S,
        )
        # If bob has read everything, it needs more records to be killed inside a batch.
        self._load_until(5 / 6)
        # The worst moment: windows and their states are written, and the transaction is not committed.
        self._new_states()
        owned, deadline_s = set(view.poll(at_once=True).owned_by(bob.name)), time.monotonic() + 10
        while owned.isdisjoint(self._new_states()) and time.monotonic() < deadline_s:
            time.sleep(0.002)
        self._expected_dead.add(bob.name)
        bob.kill()
        self._mark(MarkKind.KILL, "kill -9 bob", bob)
        view.states[bob.name] = "killed"
        view.print_event("[red]kill -9 bob[/red], after it has written windows and their states, and before it commits")
        self._mark(MarkKind.START, "start carol", carol)
        carol.start()
        view.states[carol.name] = "starts"
        self._wait(
            lambda: self._owns(self._alice) == PARTITIONS or self._owns(carol) > 0,
            "alice to take over",
            _START_TIMEOUT_S,
        )
        view.print_event("the group has detected the kill: bob's partitions have a new owner")
        self._wait(lambda: self._owns(carol) > 0, "carol to own partitions", _START_TIMEOUT_S)
        view.states[carol.name] = "reads"
        view.print_event("carol, which replaces bob with its checkpoint, owns partitions")
        self._load_until(1)

    def _finish(self) -> None:
        view = self._view
        self._wait(lambda: self._loader.done, "all flights to be loaded", _END_TIMEOUT_S)
        view.print_event("all flights are in the topic")
        view.poll(at_once=True)
        self._wait(lambda: view.snapshot.finished, "everything to be committed", _END_TIMEOUT_S)
        view.print_event("everything is committed; alice and carol stop")
        self._expected_dead |= {"alice", "carol"}
        for query in (self._alice, self._carol):
            self._mark(MarkKind.STOP, f"stop {query.name}", query)
            query.request_stop()
            view.states[query.name] = "stops"
        for query in (self._alice, self._carol):
            if not query.wait(30):
                raise DemoFailed(f"{query.name} did not stop cleanly:\n{query.last_lines()}")

    # ---- helpers -------------------------------------------------------------------------------------------------------

    def _load_until(self, share: float) -> None:
        total = self._loader.total
        self._loader.load_until(math.ceil(total * share), total / 3 / _LOADING_S)

    def _owns(self, query: Query) -> int:
        return len(self._view.snapshot.owned_by(query.name))

    def _new_states(self) -> set[TopicPartition]:
        """The partitions of the states that were written since the last call."""
        new = self._states.list().keys() - self._seen
        self._seen |= new
        manifests = (decode(unpack(self._states.read(file))[0], file) for file in new)
        return {state.topic_partition for manifest in manifests for state in manifest.states}

    def _mark(self, kind: MarkKind, text: str, query: Query) -> None:
        self._marks.append(Mark(time.time_ns() // 1_000_000, kind, text, query.name))

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self._kafka.require_running()
            self._view.poll()
            for query in (self._alice, self._bob, self._carol):
                started = query.name in self._view.states
                if started and not query.running and query.name not in self._expected_dead:
                    raise DemoFailed(f"{query.name} ended unexpectedly; the end of its log:\n{query.last_lines()}")
            if self._loader.failure:
                raise DemoFailed(f"Loading failed: {self._loader.failure}.")
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"Waited {timeout_s:.0f} s for {what}.")
            time.sleep(0.05)

    def _clean_up(self) -> None:
        for query in (self._alice, self._bob, self._carol):
            query.kill()
        if hasattr(self, "_loader"):
            self._loader.stop()
