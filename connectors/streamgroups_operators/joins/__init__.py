"""Joins of two topics whose partitions belong together (SEMANTICS W18, S10).

A join (``streamgroups_operators/joins``) processes partition p of both topics together. A batch reads both or neither: one
without new records as an empty range (``streamgroups/query/joined_states``). Both are in one task, one state file and one
commit. The source finds the topics in the name of the function in the plan (``streamgroups_spark/bridge/stage_name``). A
left record is dropped when the watermark of the right partition makes a match impossible. So a left state belongs to a
right position too, and a search takes both states from one file (``streamgroups/state/joined_lookup``).
"""
