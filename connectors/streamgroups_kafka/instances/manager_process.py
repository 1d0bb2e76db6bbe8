"""The loop of the manager of an instance: it reads the topic, writes the plan, and starts workers.

Called by ``streamgroups instance run``. :mod:`streamgroups.instances.manager` decides. An outage of the brokers is no end: the
manager reads the topic again, and plans by what it contains. Source: SEMANTICS P2; KIP-98.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.instances.entries import Placement, Removed, Worker
from streamgroups.instances.manager import ManagerSettings, Memory, Plan, Self, plan
from streamgroups.instances.ports import EntryReader, EntryWriter, InstanceLog
from streamgroups.printable import listed
from streamgroups_kafka.client.clock import awake_ms, now_ms

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class WorkerLauncher(Protocol):
    """Starts the processes of workers."""

    def start(self, worker: Worker) -> None:
        """Starts the process of a worker.

        Raises:
            StreamGroupsError: if the command cannot be started.
        """
        ...

    def exited(self) -> Mapping[str, str]:
        """The workers whose processes have ended since the last call, with the reason."""
        ...


@dataclass
class ManagerProcess:
    """The manager of an instance.

    Args:
        log: the topic of the instance.
        settings: its settings.
        launcher: starts workers.
        must_end: whether the process was requested to end.
    """

    log: InstanceLog
    settings: ManagerSettings
    launcher: WorkerLauncher
    must_end: Callable[[], bool]
    clock: Callable[[], int] = awake_ms

    def __post_init__(self) -> None:
        self._self = Self(socket.gethostname()[:255], os.getpid(), now_ms())
        self._memory = Memory()
        self._writer: EntryWriter | None = None
        self._exited: dict[str, str] = {}
        self._intended: dict[str, Worker] = {}
        self._waiting: tuple[object, ...] = ()
        self._is_failing = False

    def run(self) -> None:
        """Runs until it is requested to end. Workers and processors continue to run.

        Raises:
            FencedMember: if another manager has started.
            StreamGroupsError: if the topic cannot be read or written for a permanent reason.
        """
        reader = self.log.reader()
        try:
            while not self.must_end():
                try:
                    self._step(reader)
                except StreamGroupsError as e:
                    self._after_error(e)
        finally:
            reader.close()
            self._close()

    def _step(self, reader: EntryReader) -> None:
        if self._writer is None:
            if self._memory.heartbeat:
                # A new writer fences any other manager, also one that has replaced this one during an outage.
                reader.read_to_end(self.settings.lease_ms / 1_000)
                self._check_sole(reader)
            # It fences an earlier manager before the topic is read, which then contains all its entries.
            self._writer = self.log.manager()
        reader.read_to_end(self.settings.lease_ms / 1_000)
        self._check_sole(reader)
        self._exited |= self.launcher.exited()
        decided = plan(
            reader.state,
            self._memory,
            self.settings,
            self._self,
            steady_ms=self.clock(),
            now_ms=now_ms(),
            exited=self._exited,
        )
        self._intended |= {it.id: it for it in decided.start}
        if decided.entries:
            self._writer.write(decided.entries)
        self._memory = decided.memory
        self._exited.clear()
        self._launch({it.id for it in decided.start} | reader.state.workers.keys())
        self._report(decided)
        self._is_failing = False
        reader.poll(self.settings.heartbeat_ms / 4_000)

    def _launch(self, written: set[str]) -> None:
        """Starts the processes of workers whose entries are written, also if the response to the write was lost."""
        for worker_id in sorted(self._intended.keys() & written):
            worker = self._intended.pop(worker_id)
            logger.info("Worker %s starts.", worker_id)
            try:
                self.launcher.start(worker)
            except StreamGroupsError as e:
                logger.error("Worker %s cannot start: %s", worker_id, e)
                self._exited[worker_id] = str(e)

    def _check_sole(self, reader: EntryReader) -> None:
        """Raises if another manager has started later."""
        last = reader.state.manager
        if self._memory.heartbeat and last is not None and last.since_ms > self._self.since_ms:
            raise FencedMember(
                f"Another manager has started (process {last.pid} on {last.host}), so this one ends.",
                remedy="Run one manager for each instance. Its processors continue to run.",
            )

    def _after_error(self, error: StreamGroupsError) -> None:
        if isinstance(error, FencedMember) or not error.retriable:
            raise error
        if not self._is_failing:
            logger.warning("The manager waits for the brokers; processors run on: %s", error)
        self._is_failing = True
        # A failed transaction can leave the writer unusable.
        self._close()
        time.sleep(_RETRY_S)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _report(self, decided: Plan) -> None:
        for worker, reason in decided.dead.items():
            logger.warning("Worker %s counts as dead: %s.", worker, reason)
        for entry in decided.entries:
            if isinstance(entry, Placement):
                logger.info("Processor %s is placed on worker %s.", entry.replica, entry.worker)
            elif isinstance(entry, Removed) and entry.kind == "placement":
                logger.info("Processor %s has no worker any more.", entry.of)
        if decided.waiting and decided.waiting != self._waiting:
            logger.warning(
                "No slot is free for %s. Add a worker with: streamgroups worker run.",
                listed(decided.waiting),
            )
        self._waiting = decided.waiting
