"""The ids that a partition has seen (SEMANTICS X5).

The state of ``sg.dedup`` (``streamgroups_operators/dedup``) has two parts for each bucket of time: segments of hashed ids,
and a Bloom filter for each of them. The operator returns with a state which of its parts are *apart*: their new rows are
written into a second file of the attempt, whose manifest has no states. So a state file with all filters is small, and
a file of ids is read only if a filter matches. ``streamgroups/state/id_filters`` computes the size of the filters, and
``dedup/dedup_operator`` decides in the order of offsets. For ``on_reset="keep"`` each state names the file with which its batch
continued, and ``streamgroups/state/state_lookup`` finds the newest state that was committed.
"""
