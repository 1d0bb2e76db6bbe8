"""Writes the heartbeats and the observed states of a worker in the background.

Created by ``worker_process``. A broker that does not respond blocks only this thread. Of each replica only the last state waits.
Source: :mod:`streamgroups.instances.leases`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from streamgroups.errors import StreamGroupsError
from streamgroups.instances.entries import Entry, Worker
from streamgroups.instances.entry_json import key_of
from streamgroups.instances.leases import Lease
from streamgroups.instances.ports import EntryWriter

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class EntryQueue:
    """Entries that wait for their acknowledgement.

    Args:
        writer: writes them. The queue closes it.
        lease: the lease of the worker. An acknowledged heartbeat renews it.
        clock: the steady clock of the worker, in milliseconds.
    """

    def __init__(self, writer: EntryWriter, lease: Lease, clock: Callable[[], int]) -> None:
        self._writer, self._clock = writer, clock
        self._lease = lease
        self._waiting: dict[str, Entry] = {}
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_writing = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="entries of the worker", daemon=True)
        self._thread.start()

    @property
    def lease(self) -> Lease:
        """The lease, as the last acknowledged heartbeat has renewed it."""
        return self._lease

    def put(self, *entries: Entry) -> None:
        """Queues entries. They replace waiting ones of the same keys."""
        with self._changed:
            for entry in entries:
                # The last of several entries is written last.
                self._waiting.pop(key_of(entry), None)
                self._waiting[key_of(entry)] = entry
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Waits for the acknowledgement of all entries. Returns whether all are written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            return not self._waiting and not self._is_writing

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing)
                entries, self._waiting = self._waiting, {}
                if not entries:
                    break
                self._is_writing = True
            sent_ms = self._clock()
            is_written = self._write(list(entries.values()))
            with self._changed:
                self._is_writing = False
                if is_written:
                    # The manager measures heartbeats only.
                    if any(isinstance(it, Worker) for it in entries.values()):
                        self._lease = Lease(self._lease.lease_ms, sent_ms)
                    continue
                # As in ``put``: a replaced entry loses its place.
                not_replaced = {key: entry for key, entry in entries.items() if key not in self._waiting}
                self._waiting = {**not_replaced, **self._waiting}
                if self._is_closing:
                    break
                self._changed.wait(_RETRY_S)
        self._writer.close()

    def _write(self, entries: list[Entry]) -> bool:
        try:
            self._writer.write(entries)
        except StreamGroupsError as e:
            if not self._failing:
                logger.warning("The worker cannot renew its lease, and tries again: %s", e)
            self._failing = True
            return False
        except Exception as e:
            # Without this thread the worker loses its lease, and its processors run elsewhere.
            if not self._failing:
                logger.exception("The worker cannot renew its lease, and tries again: %s", e)
            self._failing = True
            return False
        if self._failing:
            logger.info("The worker has renewed its lease.")
        self._failing = False
        return True
