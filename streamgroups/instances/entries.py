"""The entries of the topic of an instance: definitions, desired states, placements, leases and observed states.

:mod:`streamgroups.instances.entry_json` writes and parses them, and :mod:`streamgroups.instances.instance_state` folds them.
Source: :mod:`streamgroups.instances`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from streamgroups.errors import InvalidOption

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)
#: The largest number of a placement or a request. A writer adds one, so it stays far below 64 bits.
MAX_NUMBER = 2**52
MAX_SLOTS = 64
#: The largest number of replicas of a processor. The schema of processor files has it too.
MAX_REPLICAS = 64


class Observed(str, Enum):
    """The state of a replica that its worker has observed."""

    STARTING = "starting"
    RUNNING = "running"
    #: Its query is being stopped.
    STOPPING = "stopping"
    #: Its query was stopped in an orderly way.
    STOPPED = "stopped"
    #: Its query has read its bounded data, and has ended by itself.
    COMPLETED = "completed"
    #: Its query has failed, and is not restarted any more.
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether only a new request starts the replica again."""
        return self in (Observed.COMPLETED, Observed.FAILED)

    @property
    def has_ended(self) -> bool:
        """Whether no query runs."""
        return self.is_final or self is Observed.STOPPED


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One of the equal queries of a processor: a member of its group, which takes one slot.

    Args:
        processor: the name of the processor.
        index: its number, from 0.

    >>> str(Replica("late-flights", 0))
    'late-flights/0'
    """

    processor: str
    index: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.index}"


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a processor, without secrets.

    Args:
        processor: the name of the processor.
        document: the definition as canonical JSON (:func:`canonical`).
        replicas: the number of its replicas.
    """

    processor: str
    document: str
    replicas: int = 1

    @property
    def revision(self) -> str:
        """A short text that differs between definitions.

        >>> Definition("late", canonical({"name": "late"})).revision
        '71a55496cac4'
        """
        return hashlib.sha256(self.document.encode()).hexdigest()[:12]

    @property
    def content(self) -> dict[str, Any]:
        """The values of the definition."""
        found: dict[str, Any] = json.loads(self.document)
        return found


@dataclass(frozen=True, slots=True)
class Desired:
    """The state that the user requires of a processor.

    Args:
        processor: the name of the processor.
        is_running: whether it should run.
        request: the number of the request. A greater one restarts a running processor, and starts a failed one.
    """

    processor: str
    is_running: bool
    request: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker of a replica. It occupies a slot.

    Args:
        replica: the replica.
        worker: the id of the worker.
        number: the number of the placement. It is unique in the instance, and a later placement has a greater one.
        request: the request of the desired state that it fulfils.
    """

    replica: Replica
    worker: str
    number: int
    request: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch of a replica.

    Args:
        batch: the number of the batch in its run.
        rows_per_s: processed records per second, rounded.
        lag: available records that it has not read; ``None`` if unknown.
        watermark_ms: the watermark, in milliseconds since the epoch; ``None`` without one.
        duration_ms: the duration of the batch, in milliseconds; ``None`` if unknown.
    """

    batch: int
    rows_per_s: int
    lag: int | None = None
    watermark_ms: int | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a replica, as its worker has observed it.

    Args:
        placement: the placement that the worker runs.
        state: the state.
        since_ms: when the state began, in milliseconds since the epoch.
        revision: the definition that the query has; empty before it starts.
        error_code: the code of the error of a failed replica, or of one whose query does not run yet; ``None`` without one.
        error: this error, or another reason why the query does not run yet; ``None`` without one.
        progress: its last batch; ``None`` before it.
    """

    placement: Placement
    state: Observed
    since_ms: int
    revision: str = ""
    error_code: str | None = None
    error: str | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """The lease of a worker.

    Args:
        id: the id of the worker.
        slots: the maximum number of running processors.
        since_ms: when it was created, in milliseconds since the epoch. Workers are ordered by it.
        heartbeat: the number of its last heartbeat; 0 until the process has started.
        at_ms: the time of this heartbeat on the clock of the worker, in milliseconds since the epoch.
        lease_ms: the duration of the lease. Without a heartbeat for this time the worker stops its queries.
        host: its host name.
        pid: the number of its process; 0 until it has started.
        is_managed: whether the manager has started it, and can release it.
    """

    id: str
    slots: int
    since_ms: int
    heartbeat: int
    at_ms: int
    lease_ms: int
    host: str = ""
    pid: int = 0
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """The request that a worker stops its queries and ends.

    Args:
        worker: the id of the worker.
        reason: the reason, for its log.
    """

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Manager:
    """The manager of the instance.

    Args:
        next_number: the number of the next placement.
        heartbeat: the number of its last heartbeat.
        at_ms: the time of this heartbeat on its clock, in milliseconds since the epoch.
        since_ms: when it has started, in milliseconds since the epoch.
        lease_ms: the interval after which a manager without a heartbeat counts as down, in milliseconds.
        max_workers: the maximum number of workers that it starts.
        host: its host name.
        pid: the number of its process.
    """

    next_number: int
    heartbeat: int
    at_ms: int
    since_ms: int
    lease_ms: int
    max_workers: int
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """The removal of an entry.

    Args:
        kind: the kind of the entry: the first part of its key.
        of: the processor, replica or worker; empty for the manager.
    """

    kind: str
    of: str | Replica


Fact: TypeAlias = Definition | Desired | Placement | Observation | Worker | Release | Manager
Entry: TypeAlias = Fact | Removed


def check_name(name: str, what: str) -> str:
    """Returns a name that can be a part of keys, groups and topics.

    Args:
        name: the name.
        what: what has the name, for the error.

    Raises:
        InvalidOption: if it is not a letter or digit followed by letters, digits, ``_`` and ``-``, or is longer than 100
            characters. A ``.`` separates the instance from the processor in a group id.

    >>> check_name("late flights", "a processor")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: 'late flights' is not a name of a processor. Use letters, digits, '_' and '-', at most 100.
    """
    if not is_name(name):
        raise InvalidOption(
            f"'{name[:200]}' is not a name of {what}.", remedy="Use letters, digits, '_' and '-', at most 100."
        )
    return name


def is_name(text: str) -> bool:
    """Whether a text can be the name of an instance or of a processor, or the id of a worker.

    >>> is_name("late-flights"), is_name("board.late")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def topic_of(instance: str) -> str:
    """The topic of an instance.

    >>> topic_of("board")
    'streamgroups.board'
    """
    return f"streamgroups.{instance}"


def group_of(instance: str, processor: str) -> str:
    """The consumer group of a processor.

    >>> group_of("board", "late-flights")
    'board.late-flights'
    """
    return f"{instance}.{processor}"


def canonical(document: Mapping[str, Any]) -> str:
    """A JSON object as text, which is equal for equal objects.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
