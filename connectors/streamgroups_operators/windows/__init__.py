"""Windows as an operator with state: their definition, the time of a partition, and a run for each kind of shape.

* ``window_time`` decides about time: the watermark before each record, late records, records that violate the watermark,
  and the idle timeout. By processing time the clock of the batch is the time of its records and the watermark. Records
  that a reset reads again have the clock of their state, so that the clock emits nothing where the output is dropped.
* ``panes``: tumbling and hopping windows. Each open window is a part of the state.
* ``lifetimes``: intervals and edges. An event in one window is a row of this window. Any other event is a row of
  ``shared_partials``, a part with the first and the last window of each row, which a window reads when it is emitted. ``edges``
  is the part of the events without an end. An end appends a row that removes the row of its start.
* ``sessions``: all sessions are one part. Its rows are partial sessions. A batch in which no session ends appends its
  own sessions. Any other batch merges all sessions, and compares them with those that were emitted: it emits new and
  changed ones, and retracts emitted ones that no longer exist.
* ``pane_merging``: a session is a set of windows of records that touch. The order of records matters only for a record that
  can join a session whose end the watermark has reached. Sessions with such a record are built record by record, and all
  others with sorted columns.

The revision of a row is the number of late records in it, plus the number of its flushes. When sessions merge, it is the
sum of theirs.

A bounded run with ``flush`` ends with a batch of empty ranges, whose plans have the mark ``flush``
(``streamgroups/query/micro_batches``, ``operator_states``). The state then has the emitted panes and the later records in
two parts of a window, so that the next flush finds the changed panes. A killed batch has committed no state, so the next run
plans it again. Bounded data have no plan and no stored state: ``streamgroups_operators/bounded`` runs the same operator over
whole partitions, in steps with a state in memory.
"""
