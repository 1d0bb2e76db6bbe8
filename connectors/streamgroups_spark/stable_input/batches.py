"""``sg.side_effects.stable_batches(effect, ...)``: runs a side effect in ``foreachBatch`` with records that a replay does not change.

Called by users on the driver; Spark calls the result for each batch. A batch that cannot be pinned is rejected, before
anything changes:

1. Request the ranges of the batch from its source, and read the pins. :mod:`streamgroups.stable_input.pins` decides which
   ranges are pinned.
2. Compute the other ranges. Tasks write their rows.
3. Write the pins of the whole batch, also of the ranges that were pinned before.
4. Request that the broker confirms the membership. If it does, no other member has owned the partitions before the pins
   were written, so the next owner finds them. Otherwise the pins of the batch are deleted, and it fails before its effect.
5. Call the effect with the pinned records.

Source: SEMANTICS X7; Beam's ``RequiresStableInput``.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from streamgroups.checkpoints.offset import decode
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input import idempotency
from streamgroups.stable_input.pin_retention import Retention
from streamgroups.stable_input.pins import Pin, PinFile, PinnedPart, RecordSegment, cover
from streamgroups.state.file_names import StateFileName
from streamgroups_operators.pin_store import (
    PinStore,
    check_location,
    check_writable,
    pin_files,
    record_files,
    require_pins,
)
from streamgroups_operators.pinned_records import SOURCE
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.rpc import request_source
from streamgroups_spark.messages.batch import CommittedRequest
from streamgroups_spark.session import SESSION
from streamgroups_spark.sinks.batch_info import BatchInfo, batch_info, logged_batch
from streamgroups_spark.stable_input.tasks import REPORT, Attempts, Effect, ReadRecords, WriteRecords, segments_in

logger = logging.getLogger(__name__)

#: A collection lists all files.
_EVERY_S = 60.0
_TYPES = (StringType, IntegerType, LongType)
_OTHER_QUERY = (
    "Write the output to a topic with sg.exactly_once, and read this topic with another query that has the side effect."
)


@dataclass(frozen=True, slots=True)
class StableBatch:
    """The batch of an effect.

    Args:
        batch_id: Spark's batch id. The batch of the next owner of a partition has another one.
        group_id: the group of the source.
        ranges: the offsets of the batch, in each partition.
        repeated: those of ``ranges`` that were pinned before: their effect may have run already.
    """

    batch_id: int
    group_id: str
    ranges: tuple[OffsetRange, ...]
    repeated: tuple[OffsetRange, ...]


EffectFunction: TypeAlias = Callable[[DataFrame, StableBatch], None]


def stable_batches(
    effect: EffectFunction,
    *,
    checkpoint: str,
    location: str,
    name: str = "effect",
    retention: str = "10 minutes",
) -> StableBatches:
    """Creates a function for ``foreachBatch`` that stores the records of each batch before it calls an effect.

    A replay, and the next owner of a partition, call the effect with the stored records of the same offsets (SEMANTICS X7).
    The effect runs at least once. It receives:

    * the records: a ``DataFrame`` with the columns of the batch and the column ``idempotency_key``
      (``sg.side_effects.idempotency_key``), in the order of offsets in each partition. It can be evaluated several times;
    * the batch: an ``sg.side_effects.StableBatch``.

    Args:
        effect: the side effect.
        checkpoint: the ``checkpointLocation`` of the query: a path or a URI that the driver can read.
        location: where the records are stored: a path or a URI that all queries of the group can use, with all their
            workers.
        name: the name of the effect in its group. With another name the records are computed again.
        retention: a duration: how long the records of a range are kept after the group has committed its end.

    Raises:
        InvalidOption: if an argument is invalid.

    The first batch writes to the location, and fails with ``SinkUnreachable`` if it does not answer, or denies access.

    Example::

        def charge(records, batch):
            for row in records.toLocalIterator():
                payments.charge(row.value, idempotency_key=row.idempotency_key)

        charging = sg.side_effects.stable_batches(charge, checkpoint="/data/charges", location="/data/stable")
        orders.writeStream.foreachBatch(charging).option("checkpointLocation", "/data/charges").start()
    """
    if not callable(effect):
        raise InvalidOption(
            f"The effect is {type(effect).__name__}, which is not a function.",
            remedy="Pass a function with the parameters 'records' and 'batch'.",
        )
    for argument, value in (("checkpoint", checkpoint), ("location", location), ("name", name)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidOption(f"The argument '{argument}' is empty.", remedy=f"Set '{argument}' to a text.")
    keep_ms = parse_duration_ms(retention, option="retention")
    check_location(location)
    return StableBatches(effect, checkpoint, location, name, Retention(keep_ms))


class StableBatches:
    """The function for ``foreachBatch``, created by :func:`stable_batches`.

    Args:
        effect: the side effect.
        checkpoint: the checkpoint of the query.
        location: where the records are stored.
        name: the name of the effect.
        retention: how long records are kept.
    """

    def __init__(self, effect: EffectFunction, checkpoint: str, location: str, name: str, retention: Retention) -> None:
        self._effect, self._checkpoint, self._location = effect, checkpoint, location
        self._name, self._retention = name, retention
        self._run_id = uuid.uuid4().hex[:12]
        self._stores: dict[str, PinStore] = {}
        self._collected_s = time.monotonic()

    def __repr__(self) -> str:
        return f"StableBatches({self._name!r})"

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Pins the records of a batch, and calls the effect. Spark calls it.

        Raises:
            InvalidOption: if the query cannot have stable batches. The error contains the remedy.
            FencedMember: if the member is no longer in its group.
            FencedBatch: if the group has revoked partitions while the batch read them.
            PinDamaged: if a file is damaged or does not exist.
            SinkUnreachable: if the location does not answer, or has lost its files.
        """
        check_columns(rows)
        batch = logged_batch(self._checkpoint, batch_id)
        info = batch_info(batch, SESSION)
        if not info.ranges:
            # A replay whose partitions all belong to other members now.
            return
        group_id = check_ordinary(info, has_state=CommitLog(self._checkpoint).has_state())
        store, identities = self._store(group_id), info.identities[group_id]
        covered = cover(info.ranges, store.all(), identities)
        check_pinned_columns(covered.pinned, rows.schema, self._name)
        segments = self._write_records(rows, info, covered.new, group_id)
        pins = covered.pins(segments, identities)
        file = self._pin(pins, rows, info, group_id)
        # The order matters: a member that is confirmed now has owned the partitions when the pins were written.
        try:
            batch_info(batch, SESSION, confirmed=True)
        except StreamGroupsError:
            self._delete(store, file, group_id)
            raise
        repeated = tuple(part.range for part in covered.pinned)
        self._effect(self._records(rows, pins, group_id), StableBatch(batch_id, group_id, info.ranges, repeated))
        self._collect(store, group_id, identities, info.sources[0].end)

    def _store(self, group_id: str) -> PinStore:
        if group_id not in self._stores:
            check_writable(self._location)
            pins = pin_files(self._location, group_id, self._name)
            records = record_files(self._location, group_id, self._name)
            present = partial(require_pins, self._location)
            self._stores[group_id] = PinStore(self._location, group_id, self._name, pins, records, present)
        return self._stores[group_id]

    def _write_records(
        self, rows: DataFrame, info: BatchInfo, new: tuple[OffsetRange, ...], group_id: str
    ) -> dict[TopicPartition, tuple[RecordSegment, ...]]:
        """Computes the rows of new ranges and writes them. Without new ranges nothing is computed."""
        if not new:
            return {}
        attempts = self._attempts(info)
        task = WriteRecords(Effect(self._location, group_id, self._name), attempts, new, info.ranges)
        reports = [
            (it.topic, it.partition, it.attempt, it.number, it.rows) for it in rows.mapInArrow(task, REPORT).collect()
        ]
        return segments_in(reports, attempts)

    def _pin(self, pins: tuple[Pin, ...], rows: DataFrame, info: BatchInfo, group_id: str) -> StateFileName:
        """Writes the pins of a batch, and returns their file."""
        generation = max(it.group_metadata.generation or 0 for it in info.sources if it.group_metadata is not None)
        file = self._attempts(info).file(0)
        columns = rows.schema.simpleString()
        self._store(group_id).write(PinFile(file, group_id, self._name, generation, columns, pins))
        return file

    def _delete(self, store: PinStore, file: StateFileName, group_id: str) -> None:
        """Deletes the pins of a batch whose effect does not run.

        A member of a deleted group can have a higher generation than the owner of the new one, who would use its records.
        """
        try:
            store.delete(file)
        except StreamGroupsError as e:
            logger.warning(
                "The pin file '%s' of group '%s', whose effect has not run, is not deleted: %s", file, group_id, e
            )

    def _attempts(self, info: BatchInfo) -> Attempts:
        return Attempts(time.time_ns() // 1_000_000, self._run_id, info.batch_id)

    def _records(self, rows: DataFrame, pins: Collection[Pin], group_id: str) -> DataFrame:
        spark = rows.sparkSession
        schema = StructType([*rows.schema.fields, StructField(idempotency.COLUMN, StringType(), nullable=False)])
        stored = tuple(pin for pin in pins if pin.segments)
        tasks = max(1, min(len(stored), spark.sparkContext.defaultParallelism))
        effect = Effect(self._location, group_id, self._name)
        return spark.range(0, len(stored), 1, tasks).mapInArrow(ReadRecords(effect, stored), schema)

    def _collect(
        self,
        store: PinStore,
        group_id: str,
        identities: Mapping[TopicPartition, TopicIdentity],
        end: Mapping[str, Any],
    ) -> None:
        if time.monotonic() - self._collected_s < _EVERY_S:
            return
        self._collected_s = time.monotonic()
        try:
            number = store.collect(
                partial(_committed, end), identities, self._retention, time.monotonic_ns() // 1_000_000
            )
            logger.debug("Group '%s': %d files of pinned records deleted", group_id, number)
        except StreamGroupsError as e:
            logger.warning("Old pinned records of group '%s' are not deleted: %s", group_id, e)


def _committed(end: Mapping[str, Any], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of the group that reads the batch with this end offset. Empty if its source has stopped."""
    reply = request_source(SESSION, end, CommittedRequest(end, tuple(sorted(partitions))))
    return {} if reply is None else dict(reply.next_offsets)


def check_columns(rows: DataFrame) -> None:
    """Rejects a batch whose rows cannot be attributed to records of the source.

    Raises:
        InvalidOption: if a column is missing, has another type, or has the name of the column of the keys.
    """
    names = rows.columns
    missing = [name for name in SOURCE if name not in names]
    if missing:
        raise InvalidOption(
            f"The batch has no column {', '.join(map(repr, missing))}, so its rows cannot be attributed to records.",
            remedy="Keep the columns 'topic', 'partition' and 'offset' of the source in each select. Rows after an "
            f"aggregation have no offset: {_OTHER_QUERY}",
        )
    for name, of in zip(SOURCE, _TYPES, strict=True):
        found = [field.dataType for field in rows.schema.fields if field.name == name]
        if len(found) != 1 or not isinstance(found[0], of):
            raise InvalidOption(
                f"The column '{name}' has the type {found[0].simpleString()}" + (", twice." if len(found) > 1 else "."),
                remedy="The columns 'topic', 'partition' and 'offset' must be those of the source: do not replace them.",
            )
    if idempotency.COLUMN in names:
        raise InvalidOption(
            f"The batch already has a column '{idempotency.COLUMN}'.", remedy="Rename it: this column is added."
        )


def check_ordinary(info: BatchInfo, *, has_state: bool) -> str:
    """Returns the group of a batch that can be pinned.

    Raises:
        InvalidOption: if it reads for several groups, also of the same name in several clusters, or its query has an
            operator with state.
    """
    groups = sorted({source.group_id for source in info.sources})
    if len(groups) > 1:
        raise InvalidOption(
            f"The query reads for the groups {', '.join(groups)}, but a stable batch belongs to one group.",
            remedy="Read all topics with one source ('subscribe' accepts several).",
        )
    cluster_ids = {decode(source.end).cluster_id for source in info.sources} - {None}
    if len(cluster_ids) > 1:
        raise InvalidOption(
            f"The query reads for group '{groups[0]}' from {len(cluster_ids)} clusters, but a stable batch belongs to one "
            "group of one cluster.",
            remedy="Start one query for each cluster, each with its own 'location'.",
        )
    if has_state or any(source.states_run_id is not None for source in info.sources):
        # A pinned batch is not computed again, but its state would have to be.
        raise InvalidOption(
            f"The query of group '{groups[0]}' has an operator with state, so its batches cannot be pinned.",
            remedy=_OTHER_QUERY,
        )
    return groups[0]


def check_pinned_columns(pinned: Collection[PinnedPart], schema: StructType, name: str) -> None:
    """Rejects pinned records with other columns than those of the batch.

    Raises:
        InvalidOption: if the columns differ: the program has changed since the records were pinned.
    """
    for part in pinned:
        if part.pin.segments and part.origin.columns != schema.simpleString():
            raise InvalidOption(
                f"The pinned records of {part.range} have the columns {part.origin.columns}, and those of the batch are "
                f"{schema.simpleString()}.",
                remedy="Let the previous version of the program finish these records. Or set another 'name' than "
                f"'{name}': the records are then computed again, and have the same keys.",
            )
