"""The faults of the storage of a campaign: lost responses of PostgreSQL to COMMIT, and an object store that fails.

Used by ``integration_tests.campaign.running``, which injects the faults. The queries connect to PostgreSQL through a
proxy, and the independent reader connects directly. With ``--storage s3`` an object store has the states of windows, and the table
of Delta. The reader has a copy of the table, which no fault hits. A fault that did not happen is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from component_tests.lossy_proxy import COMMITTED, LossyProxy
from component_tests.object_store import BUCKET, ObjectStore
from integration_tests.campaign.fault import Fault
from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.turns import STORE_VICTIMS
from streamgroups_testkit.waits import wait_until

#: The share of the requests to the store that have a fault, by the fault of a campaign.
SHARES = {"store-errors": 1.0, "store-slow": 0.3, "store-lost": 0.3}
#: A fault of the store ends after this number of requests that had it. Clients send a request up to eleven times, so queries see errors.
MIN_REQUESTS = {"store-errors": 60, "store-slow": 10, "store-lost": 10}
#: This number of them are writes.
_MIN_WRITES = 3
#: The time in which a fault must happen, in seconds. The processes of a query can be starting.
_FAULT_S = 240
_TABLE, _STATES = "board", "states"
#: The name of the count of lost responses.
LOST_COMMIT = "lost COMMIT"
_COPY_S = 0.5


class CampaignStorage:
    """The storage of the queries of one campaign. A context manager.

    Args:
        sink: ``kafka``, ``postgres`` or ``delta``.
        to: the output topic, connection string or table path.
        directory: the directory of the campaign.
        victims: the faults of the campaign.
        storage: ``disk`` or ``s3``.
        report: called with the number of lost responses and of requests with a fault.
    """

    def __init__(
        self, sink: str, to: str, directory: Path, victims: Iterable[str], storage: str, report: Callable[[str], None]
    ) -> None:
        self._sink, self._is_lossy, self._copied = sink, "commit-answer" in victims, Path(to)
        self._storage, self._report = storage, report
        self._exit, self._copying = ExitStack(), threading.Lock()
        self._proxy: LossyProxy | None = None
        self._store: ObjectStore | None = None
        self._before: Mapping[str, int] = {}
        self._stopped = threading.Event()
        #: The output topic, connection string or table address for the queries.
        self.to = to
        #: The option ``stateLocation``.
        self.state_location = str(directory / _STATES)
        #: The options by which deltalake connects to the store.
        self.storage_options: dict[str, str] = {}

    def __enter__(self) -> CampaignStorage:
        if self._storage == "s3":
            self._store = self._exit.enter_context(ObjectStore())
            self.state_location = self._store.location(_STATES)
            if self._sink == "delta":
                self.to = f"s3://{BUCKET}/{_TABLE}"
                # The queries have the default number of attempts.
                of_store = self._store.storage_options.items()
                self.storage_options = {name: value for name, value in of_store if name != "max_retries"}
                copying = threading.Thread(target=self._copy_repeatedly, daemon=True)
                copying.start()
                self._exit.callback(copying.join, 30)
                self._exit.callback(self._stopped.set)
        if self._sink == "postgres" and self._is_lossy:
            # Imported late: only campaigns with PostgreSQL need psycopg.
            from psycopg.conninfo import conninfo_to_dict, make_conninfo

            port = int(str(conninfo_to_dict(self.to)["port"]))
            self._proxy = self._exit.enter_context(LossyProxy(port))
            self.to = make_conninfo(self.to, port=self._proxy.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def is_remote(self) -> bool:
        """Whether the states are on the object store."""
        return self._store is not None

    def faults(self, all_are_up: Callable[[], bool]) -> dict[str, Fault]:
        """The faults by their names.

        Args:
            all_are_up: restarts queries that have ended.
        """
        begins = {"commit-answer": self._lose_commit} | {it: self._fail_store(it) for it in STORE_VICTIMS}

        def begin(of_fault: Callable[[], None], _: int, __: CampaignMember) -> None:
            of_fault()

        def finish(victim: str, _: str, __: CampaignMember) -> None:
            self.finish(victim, all_are_up)

        return {it: Fault(partial(begin, of_fault), partial(finish, it)) for it, of_fault in begins.items()}

    def finish(self, victim: str, all_are_up: Callable[[], bool]) -> None:
        """Waits until a fault has happened, and ends it.

        Args:
            victim: the fault.
            all_are_up: restarts queries that have ended.

        Raises:
            AssertionError: if it did not happen in time.
        """
        try:
            wait_until(lambda: all_are_up() and is_enough(victim, self.happened()), f"{victim} happens", _FAULT_S)
        finally:
            if self._store is not None:
                self._store.set_faults("", 0.0)
        self._report(", ".join(f"{n} {name}" for name, n in sorted(self.happened().items()) if n))

    def happened(self) -> dict[str, int]:
        """The number of lost responses, or of requests with a fault by fault and method, since the fault has begun."""
        found = dict(self._store.faults) if self._store is not None else {}
        if self._proxy is not None:
            found[LOST_COMMIT] = self._proxy.n_lost
        return {name: n - self._before.get(name, 0) for name, n in found.items()}

    def copy(self) -> None:
        """Copies new objects of the table to the path of the independent reader: the log after its data files, in order."""
        if self._store is None or self._sink != "delta":
            return
        with self._copying:
            names = (it for it in self._store.sizes if it.startswith(f"{_TABLE}/"))
            for name in sorted(names, key=lambda it: ("/_delta_log/" in it, it)):
                file = self._copied / name.removeprefix(f"{_TABLE}/")
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    unfinished = file.with_name(f".{file.name}")
                    unfinished.write_bytes(self._store.content(name))
                    unfinished.rename(file)

    def _copy_repeatedly(self) -> None:
        while not self._stopped.wait(_COPY_S):
            self.copy()

    def _lose_commit(self) -> None:
        assert self._proxy is not None, "commit-answer needs the sink postgres"
        self._begin()
        self._proxy.lose_next(COMMITTED)

    def _fail_store(self, victim: str) -> Callable[[], None]:
        def fail() -> None:
            assert self._store is not None, f"{victim} needs --storage s3"
            self._begin()
            self._store.set_faults(victim.removeprefix("store-"), SHARES[victim])

        return fail

    def _begin(self) -> None:
        self._before = {}
        self._before = self.happened()


def is_enough(victim: str, happened: Mapping[str, int]) -> bool:
    """Whether a fault has happened: one lost COMMIT, or enough requests of the store.

    >>> is_enough("commit-answer", {"lost COMMIT": 1})
    True
    >>> is_enough("store-slow", {"slow GET": 40}), is_enough("store-slow", {"slow GET": 7, "slow PUT": 3, "lost COMMIT": 0})
    (False, True)
    >>> is_enough("commit-answer", {"slow PUT": 40, "lost COMMIT": 0})
    False
    """
    if victim == "commit-answer":
        return happened.get(LOST_COMMIT, 0) > 0
    of_store = {name: n for name, n in happened.items() if name != LOST_COMMIT}
    writes = sum(n for name, n in of_store.items() if name.endswith((" PUT", " POST")))
    return sum(of_store.values()) >= MIN_REQUESTS[victim] and writes >= _MIN_WRITES
