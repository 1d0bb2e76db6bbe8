"""The history of a campaign: who records its events, and the check at its end. Used by ``integration_tests.campaign``.

While the campaign runs, its own process appends to ``history/campaign.jsonl``: the producer, the observer, the injector of faults. The
processes of the queries append to files of their own (``history/recorder.py``), and their members write the history of the product.
:meth:`CampaignHistory.finish` adds the output of the independent reader, and writes all events into ``history.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from integration_tests.campaign.computed import COMPUTED
from integration_tests.campaign.turns import CURSORS, ORDERED_KINDS, STATE_KINDS, WINDOWS_KINDS
from integration_tests.campaign.windows import DELAY_MS, PARTITIONS
from integration_tests.history.anomalies import Report
from integration_tests.history.checker import check
from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    Delivered,
    Event,
    ExpectedRow,
    FaultHealed,
    FaultInjected,
    HighWater,
    LogsSearched,
    Position,
    Read,
    Reset,
    StateError,
    StateLoaded,
    StateWritten,
    Workload,
    Written,
    WrittenRow,
    name_of,
)
from integration_tests.history.files import HistoryWriter, read_files
from integration_tests.history.members import converted, with_generations
from integration_tests.history.observer import (
    DeltaHighWater,
    HighWaterReader,
    KafkaHighWater,
    Observer,
    postgres_high_water,
)
from integration_tests.history.outputs_read import (
    Inputs,
    expected_computed,
    expected_rows,
    now_ms,
    written,
    written_computed,
    written_rows,
)
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.membership.history_file import read_history

#: The events of all campaigns, and those of the kinds of queries.
_ALWAYS = (Acknowledged, Assigned, Commit, Position, Read)
#: Instances with cursors do not record their batches.
_OF_CURSORS = (Acknowledged, Position)
_OF_RECORDS = (HighWater, Written)
_OF_ROWS = (ExpectedRow, WrittenRow)


class CampaignHistory:
    """Records the history of one campaign.

    Args:
        directory: the directory of the campaign.
        group: the group of the queries.
        topic: their topic.
        sink: ``kafka``, ``postgres`` or ``delta``.
        kind: one of ``campaign.turns.KINDS``.
        max_lag_s: the longest permitted time from the last fault until the group has read all records, in seconds.
        of_processes: the directory to which the processes of the queries append; ``None``: that of this history.
        has_owners: whether these processes have the names of the members. Otherwise a commit has no member that can own its partitions.
    """

    def __init__(
        self,
        directory: Path,
        group: str,
        topic: str,
        sink: str,
        kind: str,
        max_lag_s: float,
        *,
        of_processes: Path | None = None,
        has_owners: bool = True,
    ) -> None:
        #: The file of all events, after the end of the campaign.
        self.file = directory / "history.jsonl"
        #: The files of the processes, and those of the members.
        self.directory, self.members = directory / "history", directory / "history" / "members"
        self._group, self._topic, self._sink, self._kind = group, topic, sink, kind
        self._n_resets = 0
        self._of_processes = of_processes
        always = _ALWAYS if has_owners else tuple(it for it in _ALWAYS if it is not Assigned)
        self._always: tuple[type[Event], ...] = _OF_CURSORS if kind == CURSORS else always
        #: Converts each event of the file of all events, or leaves it out.
        self.convert: Callable[[Event], Event | None] = lambda event: event
        #: Appends events.
        self.record = HistoryWriter(self.directory / "campaign.jsonl")
        #: The acknowledged records.
        self.inputs = Inputs(self.record)
        self._begun_ms, self._max_lag_s = now_ms(), max_lag_s

    @property
    def _has_rows(self) -> bool:
        """Whether the rows of the output are computed."""
        return self._kind in WINDOWS_KINDS or self._kind in COMPUTED

    def observer(self, bootstrap: str, to: str, positions: Callable[[], Mapping[TopicPartition, int]]) -> Observer:
        """The observer of the committed offsets and of the output.

        Args:
            bootstrap: the broker.
            to: the output topic, connection string or table path.
            positions: returns the committed offsets.
        """
        high_water: HighWaterReader | None = None
        if self._kind != CURSORS and not self._has_rows:
            if self._sink == "kafka":
                high_water = KafkaHighWater(bootstrap, to, PARTITIONS, self.inputs.places)
            elif self._sink == "postgres":
                high_water = lambda: postgres_high_water(to)  # noqa: E731
            else:
                high_water = DeltaHighWater(Path(to))
        return Observer(self.record, self._group, self._topic, positions, high_water)

    def injected(self, point: str, fault: str, target: str) -> None:
        """Records a fault."""
        self.record(FaultInjected(now_ms(), "injector", point, fault, target))

    def healed(self, point: str, fault: str) -> None:
        """Records the end of a fault."""
        self.record(FaultHealed(now_ms(), "injector", point, fault))

    def reset(self, phase: str, time_ms: int, targets: Mapping[int, int]) -> None:
        """Records that a reset was requested or applied. One follows the other.

        Args:
            phase: ``requested`` or ``applied``.
            time_ms: when.
            targets: the target of each partition.
        """
        self._n_resets += phase == "requested"
        offsets = {TopicPartition(self._topic, p): n for p, n in targets.items()}
        self.record(Reset(time_ms, "injector", self._group, self._n_resets, offsets, phase))

    def searched(self, found: LogsSearched) -> None:
        """Records the search for secrets."""
        self._always = (*self._always, LogsSearched)
        self.record(found)

    def finish(
        self,
        arrived: Sequence[tuple[int, str]],
        letters: Iterable[str],
        count: int,
        errors: Iterable[str],
        right_count: int = 0,
    ) -> Report:
        """Adds the output, writes the file of all events, and checks it.

        Args:
            arrived: the partition and the value of each record of the output, in the order of its commits.
            letters: the values of the dead letters.
            count: the number of records, without those that close windows.
            errors: the errors of states.
            right_count: the number of records of the right topic of a join.
        """
        self.record(*(StateError(now_ms(), "reader", it) for it in errors))
        values = [value for _, value in arrived]
        found: list[Event] = []
        if self._kind in COMPUTED:
            rows = COMPUTED[self._kind].expected(count, right_count)
            found += [*expected_computed(rows, self.inputs.places), *written_computed(values)]
        elif self._kind in WINDOWS_KINDS:
            found += [*expected_rows(self._topic, count), *written_rows(values)]
        elif self._kind != CURSORS:
            # Instances with cursors have recorded their messages.
            found += [*written("output", values, self.inputs.places), *written("letters", letters, self.inputs.places)]
        self.record(*found)
        self.gather(is_complete=True)
        # The check has only the file, as a later check of the same file.
        return check(read_files([self.file]))

    def finish_without_output(self, errors: Iterable[str]) -> Report:
        """Checks the history of a campaign whose output cannot be read.

        Args:
            errors: the errors of states.
        """
        self.record(*(StateError(now_ms(), "reader", it) for it in errors))
        self.gather()
        return check(read_files([self.file]))

    def gather(self, *, is_complete: bool = False) -> None:
        """Writes the file of all events.

        Args:
            is_complete: whether it has the output. The history of a campaign that has failed before its end does not have it.
        """
        self.inputs.flush()
        directories = [self.directory, *([self._of_processes] if self._of_processes else [])]
        files = sorted(it for directory in directories for it in directory.glob("*.jsonl"))
        events = [self._workload(is_complete), *read_files(files)]
        if self.members.exists():
            events += converted(read_history(self.members))
        self.file.unlink(missing_ok=True)
        whole = HistoryWriter(self.file)
        # Events of one time keep their order: the recorder's assignment is before that of the member.
        for it in with_generations(sorted(events, key=lambda it: it.time_ms)):
            if (event := self.convert(it)) is not None:
                whole(event)
        whole.close()

    def _workload(self, is_complete: bool) -> Workload:
        computed = COMPUTED.get(self._kind)
        delay_ms = DELAY_MS if self._kind in WINDOWS_KINDS else computed.delay_ms if computed else None
        of_output: tuple[type[Event], ...] = _OF_RECORDS
        if not is_complete:
            of_output = ()
        elif self._kind == CURSORS:
            of_output = (Delivered,)
        elif self._has_rows:
            of_output = _OF_ROWS
        of_states = (StateLoaded,) if self._kind in STATE_KINDS else ()
        of_watermarks = () if delay_ms is None else (StateWritten,)
        return Workload(
            self._begun_ms,
            "injector",
            self._group,
            self._topic,
            # Spark processes grouped records in no defined order.
            is_ordered=self._kind in ORDERED_KINDS,
            is_atomic=self._sink == "kafka",
            delay_ms=delay_ms,
            max_lag_ms=round(self._max_lag_s * 1_000),
            recorded=tuple(map(name_of, (*self._always, *of_states, *of_watermarks, *of_output))),
        )
