"""The pin files of one effect of a group: reads, writes and deletes them.

Called by ``streamgroups_spark.stable_input`` on the driver. The rules are in :mod:`streamgroups.stable_input`. Files never
change, so each one is read once. They have the format of state files, with a checksum (``file_format``), and are in
``<location>/stable-batches/<group>/<name>``. Source: SEMANTICS X7.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from streamgroups.errors import InvalidOption, PinDamaged, SinkUnreachable, StateUnreachable
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.stable_input.pin_file import decode, encode
from streamgroups.stable_input.pin_retention import Retention, deletable
from streamgroups.stable_input.pins import PinFile
from streamgroups.state.file_ages import FileAges
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_files import CollectableFiles
from streamgroups.threads import in_threads
from streamgroups_operators.file_format import pack, unpack
from streamgroups_operators.location_marker import require_marker
from streamgroups_operators.locations import StateDirectory, files_below, shown

_DIRECTORY = "stable-batches"
_NO_ROWS = pa.schema([])


@contextmanager
def reaching(location: str) -> Iterator[None]:
    """Raises the errors of a storage as errors of stable batches."""
    try:
        yield
    except StateUnreachable as e:
        reason = e.what.rpartition(" cannot be used: ")[2]
        raise SinkUnreachable(
            f"The location '{shown(location)}' of stable batches cannot be used: {reason}",
            remedy="Check 'location' and its permissions; the driver and all workers need it. The query can be restarted.",
        ) from None


def check_location(location: str) -> None:
    """Checks that Arrow supports a location, without access to it.

    Raises:
        InvalidOption: if Arrow does not support it.
        SinkUnreachable: if Arrow cannot open it.
    """
    try:
        with reaching(location):
            files_below(location, _DIRECTORY)
    except InvalidOption:
        raise InvalidOption(
            f"The location '{shown(location)}' of stable batches is not supported.",
            remedy="Use a path, or a URI of a file system that Arrow reads, such as s3://bucket/batches.",
        ) from None


def check_writable(location: str) -> None:
    """Writes an empty file to a location, and deletes it.

    Raises:
        SinkUnreachable: if the storage does not answer, or denies access.
    """
    file = StateFileName(time.time_ns() // 1_000_000, uuid.uuid4().hex[:12], 0, 0)
    with reaching(location):
        files = files_below(location, _DIRECTORY)
        files.write(file, memoryview(b""))
        files.delete([file])


def require_pins(location: str) -> None:
    """Requires that a location still has the pins of the first call: an unmounted volume lists as an empty directory.

    Raises:
        StateUnreachable: if it has not. See :func:`~streamgroups_operators.location_marker.require_marker`.
    """
    require_marker(location, _DIRECTORY)


def pin_files(location: str, group_id: str, name: str) -> StateDirectory:
    """The pin files of an effect."""
    return files_below(location, _DIRECTORY, group_id, name, "pins")


def record_files(location: str, group_id: str, name: str) -> StateDirectory:
    """The files of pinned records of an effect."""
    return files_below(location, _DIRECTORY, group_id, name, "records")


class PinStore:
    """The pins of one effect. Used by one thread.

    Args:
        location: the location, for its errors.
        group_id: the group of the query.
        name: the name of the effect.
        pins: the pin files.
        records: the files of records.
        require_location: raises StateUnreachable if the location has lost its files.
    """

    def __init__(
        self,
        location: str,
        group_id: str,
        name: str,
        pins: CollectableFiles,
        records: CollectableFiles,
        require_location: Callable[[], None] = lambda: None,
    ) -> None:
        self._location, self._group_id, self._name = location, group_id, name
        self._pins, self._records, self._require_location = pins, records, require_location
        self._read: dict[StateFileName, PinFile] = {}
        self._ages = FileAges(), FileAges()

    def all(self) -> list[PinFile]:
        """All pin files. Files that retention deletes meanwhile are left out.

        Raises:
            PinDamaged: if a file is damaged: it can contain a pin of any range.
            SinkUnreachable: if the storage does not answer, or has lost its files.
        """
        with reaching(self._location):
            listed = self._pins.list()
            self._require_location()
            self._read = {file: found for file, found in self._read.items() if file in listed}
            missing = sorted(listed.keys() - self._read.keys())
            # An object store answers each request in tens of milliseconds, and several at once.
            found = list((in_threads if len(missing) > 1 else map)(self._opened, missing))
        self._read |= {it.file: it for it in found if it is not None}
        return list(self._read.values())

    def write(self, file: PinFile) -> None:
        """Writes a pin file. From now on a replay uses its records.

        Raises:
            SinkUnreachable: if the storage does not answer, or has lost its files.
        """
        content = pack(encode(file), _NO_ROWS, [])
        with reaching(self._location):
            self._pins.write(file.file, content)
            # In the directory below an unmounted volume, no replay finds the file.
            self._require_location()
        self._read[file.file] = file

    def delete(self, file: StateFileName) -> None:
        """Deletes a pin file of a batch whose effect has not run.

        Raises:
            SinkUnreachable: if the storage does not answer.
        """
        with reaching(self._location):
            self._pins.delete([file])
        self._read.pop(file, None)

    def collect(
        self,
        committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        identities: Mapping[TopicPartition, TopicIdentity],
        retention: Retention,
        now_ms: int,
    ) -> int:
        """Deletes the files that no batch needs. Returns their number.

        Args:
            committed: returns the committed offsets of the group.
            identities: the current topics of partitions, as far as they are known.
            retention: how long pins are kept.
            now_ms: the time by a monotonic clock, in milliseconds.

        Raises:
            PinDamaged: if a pin file is damaged.
            SinkUnreachable: if the storage does not answer.
        """
        with reaching(self._location):
            # First the records: a file that is listed, and that no later pin names, belongs to no pin.
            records, pins = self._records.survey(), self._pins.survey()
            files = self.all()
            partitions = {pin.range.topic_partition for file in files for pin in file.pins}
            of_records, of_pins = self._ages[0].observe(records, now_ms), self._ages[1].observe(pins, now_ms)
            ages_ms = of_records.files | {
                file: min(age_ms, of_records.files.get(file, age_ms)) for file, age_ms in of_pins.files.items()
            }
            gone = deletable(files, records.files, committed(partitions), identities, retention, ages_ms)
            self._pins.delete(gone.pins)
            self._records.delete(gone.records)
            old = [it.unfinished_since(retention.young_ms) for it in (of_records, of_pins)]
            self._records.delete_unfinished(old[0])
            self._pins.delete_unfinished(old[1])
        return len(gone.pins) + len(gone.records) + sum(map(len, old))

    def _opened(self, file: StateFileName) -> PinFile | None:
        try:
            found = decode(unpack(self._pins.read(file))[0], file)
        except FileNotFoundError:
            return None
        except ValueError as e:
            raise PinDamaged(
                f"The pin file '{file}' of group '{self._group_id}' in '{self._pins.location}' is damaged: {e}.",
                remedy="Restore the file from a backup. Or delete it: the records of its batch are then computed again, "
                "and an effect that has run already can see other records.",
                group=self._group_id,
            ) from e
        if (found.group_id, found.name) != (self._group_id, self._name):
            raise PinDamaged(
                f"The pin file '{file}' belongs to the effect '{found.name}' of group '{found.group_id}', not to "
                f"'{self._name}' of '{self._group_id}'.",
                remedy="Do not copy files from one directory to another: delete it.",
                group=self._group_id,
            )
        return found
