"""Group cursors: leases, tokens, admission and positions.

An instance of ``GroupCursors`` is the same ``KafkaMember``, with a second consumer that joins no group and reads what
the member owns. A cursor contains the state of a request: the positions of its instance, and the ownership epoch of
each partition. So a request can be repeated, and a cursor from before a handover or a reset commits nothing. Messages
that were returned and not committed are the member's batch in flight, for which a handover waits. Each instance has one
thread. A second thread checks leases five times a second and ends instances without requests. On the command line an
instance is a background process, to which the commands pass their cursors
(``streamgroups_cli/cursors/instance_process``).
"""
