"""A peer: Kafka Streams with the same windows, as a program in Java. The family ``state`` runs it.

``kafka_streams/WindowCounts.java`` is compiled with the JDK's ``javac``. Its jars come from a Maven repository once, into
the cache of the embedded broker's jars. Source: Kafka's "Streams Developer Guide", Windowing, State restoration.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

from benchmarks.rounds import NotHere
from streamgroups.errors import StreamGroupsError
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly
from streamgroups_broker._java import find_java
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION

_COORDINATES = (
    f"org.apache.kafka:kafka-streams:{DEFAULT_KAFKA_VERSION}",
    f"org.apache.kafka:kafka-clients:{DEFAULT_KAFKA_VERSION}",
    "org.rocksdb:rocksdbjni:9.7.3",
    "com.fasterxml.jackson.core:jackson-annotations:2.19.4",
    "com.fasterxml.jackson.core:jackson-core:2.19.4",
    "com.fasterxml.jackson.core:jackson-databind:2.19.4",
    "org.slf4j:slf4j-api:1.7.36",
)
_SOURCE = Path(__file__).parent / "kafka_streams" / "WindowCounts.java"
_TIMEOUT_S = 300
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the program.

    Args:
        at_ms: its time, in milliseconds since the epoch.
        kind: ``reading``, ``restoring``, ``restored``, ``emitted`` or ``done``.
        records: the number of records of the last three.
    """

    at_ms: int
    kind: str
    records: int


def parse(lines: Iterable[str]) -> list[Event]:
    """Parses the output of the program.

    >>> parse(["1700000000000 done 4800\\n"])
    [Event(at_ms=1700000000000, kind='done', records=4800)]
    """
    fields = (line.split() for line in lines)
    return [Event(int(at_ms), kind, int(records)) for at_ms, kind, records in fields]


def processed_s(events: Sequence[Event]) -> float | None:
    """The seconds from the first record until all records were processed; ``None`` before that.

    The start of the program and its group join are not included, as in the figures of the Spark queries.

    >>> processed_s([Event(1000, "reading", 0), Event(3500, "done", 9)])
    2.5
    """
    first_ms = next((it.at_ms for it in events if it.kind == "reading"), None)
    done_ms = next((it.at_ms for it in events if it.kind == "done"), None)
    return None if first_ms is None or done_ms is None else (done_ms - first_ms) / 1000


def restored_s(events: Sequence[Event], stores: int) -> float | None:
    """The seconds from the start of the first restoration to the end of the last one; ``None`` before that.

    Args:
        events: the output of the program.
        stores: the number of stores, one for each partition.

    >>> begun, ended = Event(1000, "restoring", 0), Event(4000, "restored", 7)
    >>> restored_s([begun, ended], 1), restored_s([begun, ended], 2)
    (3.0, None)
    """
    ends_ms = [it.at_ms for it in events if it.kind == "restored"]
    if len(ends_ms) < stores:
        return None
    return (max(ends_ms) - min(it.at_ms for it in events if it.kind == "restoring")) / 1000


@cache
def _classpath() -> str:
    """The jars of Kafka Streams.

    Raises:
        NotHere: if they are unavailable.
    """
    try:
        java = find_java()
        jars = cached_jars(
            f"kafka-streams-{DEFAULT_KAFKA_VERSION}",
            DEFAULT_KAFKA_VERSION,
            lambda directory, _: fetch_exactly(directory, _COORDINATES, java),
        )
    except StreamGroupsError as e:
        raise NotHere(f"its jars are not available: {e}") from None
    return jars.classpath


def compiled(directory: Path) -> Path:
    """Compiles the program into a directory, once.

    Raises:
        NotHere: if the jars or ``javac`` are unavailable.
    """
    classes = directory / "kafka-streams-classes"
    if classes.exists():
        return classes
    javac = Path(find_java().executable).resolve().with_name("javac")
    found = str(javac) if javac.exists() else shutil.which("javac")
    if found is None:
        raise NotHere("javac is missing; install a JDK")
    command = [found, "-cp", _classpath(), "-d", str(classes), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"javac: {done.stderr.strip().splitlines()[0]}")
    return classes


class StreamsProgram:
    """The program in a process of its own, killed at the end of the ``with`` block.

    Args:
        directory: the directory of its class files and its state.
        bootstrap: the bootstrap servers.
        topic: the topic to read, from its earliest offsets.
        application: its application id.
        threads: the number of its threads.
        records: the number of records in the topic.

    Raises:
        NotHere: if the program is unavailable.
    """

    def __init__(
        self, directory: Path, bootstrap: str, topic: str, application: str, *, threads: int, records: int
    ) -> None:
        classes = compiled(directory)
        # The state of a new machine: nothing.
        work = directory / f"{application}-{time.monotonic_ns()}"
        work.mkdir()
        self._out, self._errors = work / "out", work / "errors"
        command = [
            *(find_java().executable, "-Xmx1g", "-cp", f"{classes}:{_classpath()}", "WindowCounts"),
            *(bootstrap, topic, application, str(work / "state"), str(threads), str(records)),
        ]
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors)

    def wait_for(self, found: Callable[[Sequence[Event]], float | None]) -> float:
        """Waits until the events contain a result.

        Raises:
            RuntimeError: if the program has ended.
            TimeoutError: if there is no result in time.
        """
        deadline_s = time.monotonic() + _TIMEOUT_S
        while (result := found(self.events())) is None:
            if self._process.poll() is not None:
                raise RuntimeError((self._errors.read_text().strip().splitlines() or ["it ended"])[-1])
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {_TIMEOUT_S} s; events: {self.events()[-3:]}")
            time.sleep(_POLL_S)
        return result

    def events(self) -> list[Event]:
        """The events so far."""
        lines = self._out.read_text().splitlines(keepends=True)
        return parse(line for line in lines if line.endswith("\n"))

    def __enter__(self) -> StreamsProgram:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(30)
        if self._process.stdin is not None:
            self._process.stdin.close()
