"""State of operators in files: on a local disk, a shared file system or an object store (SEMANTICS S10).

Arrow reads and writes the files. This package imports neither Spark nor a Kafka client.

A state contains partial aggregates: a batch appends a segment to each window that it changes, and names the segments
of earlier batches. A function with state (``streamgroups_operators/function_operator``) appends the new rows of its keys.
So the cost of a write follows the batch. ``streamgroups_operators/file_format`` has a checksum for each file.

An operator can be due without new records: its state contains the time. The commit names it too, so that each owner of
the partition plans an empty range at this time (``OperatorStates.due``). For an idle timeout the high watermark must
show that no record is available. The plan of the range contains when this was observed. A range that reads offsets is
not idle, also if a filter removes their records. Empty ranges are not in the checkpoint. A restarted query continues
with the committed state, and plans what is still due. A ledger stores a fingerprint of the state beside each position
(``streamgroups/ledgers/ledger_states``), because the position of such a batch does not change.

Lateness is decided record by record, against the newest event time and the watermark of the producer before the record in
its partition (``streamgroups_operators/producer_time``). A state is
therefore a function of the records before its offset, and any file for the offset is right. A reset to an offset between
two batches loads an earlier state and reads the records in between without output.

The state of windows by event time reports the latest event time and the watermark of its partition, and the commit names
them (``streamgroups/state/state_time``). ``groups watch``, ``groups describe --state`` and ``sg.event_time.explain_time`` show them
(``streamgroups/event_time/stored_time``).

With ``time="group"`` a batch has one watermark, that of the group when the batch was planned. A state also reports this
watermark, and the earliest end of a window that is not emitted. ``streamgroups/query/group_time`` reads the commits of
all partitions, and computes the minimum without idle partitions. The plan of a range contains it. A partition whose
earliest end it reaches is due. Such a state depends on the other partitions, as one by the clock depends on the clock:
the commit names the right file.
"""
