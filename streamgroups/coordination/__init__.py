"""Coordination of the members and tools of one group through metadata groups.

A broker accepts commits to a group with members from its members only. So a reset request is written to metadata
groups: auxiliary groups without members, whose committed offsets carry JSON entries (``docs/source.rst``,
"Required ACLs", lists all of them). Only the owner of a partition writes ``<group>.streamgroups``: its name, its lease,
its batch in flight, the request for which it has paused, and the last request that it has applied. Only the requester
writes ``<group>.streamgroups.resets``. So neither overwrites the entries of the other. The pure function ``next_step``
in ``streamgroups/coordination/reset_protocol`` determines the next step of a member.
``streamgroups/coordination/reset_participant`` reads and writes the entries, for queries and cursors.

.. code-block:: mermaid

    sequenceDiagram
        participant CLI as groups reset
        participant Meta as Metadata groups
        participant A as Member A
        participant B as Member B
        participant Broker
        CLI->>Meta: reset request
        A->>Meta: poll before each batch
        Note over A: finish and commit the batch in flight
        A->>Meta: paused
        B->>Meta: poll, paused
        A->>Meta: all owners have paused?
        A->>Broker: commit the new position
        A->>Meta: applied
        B->>Broker: commit the new position
        B->>Meta: applied
        CLI->>Meta: all applied?

1. Before each batch, at most four times a second, a member reads the reset requests for its partitions. When a request
   is complete and no batch is in flight, the member records *paused*. From then on it commits nothing from the old
   position and plans no batch on the partition.
2. It reads the entries of all partitions of the request, and queries their owners. When each current owner has paused,
   it commits the new position and waits for the group to accept it. Only then it records *applied* and continues.

Each member detects by itself that all owners have paused, so the requester can be gone. Entries of former owners are
ignored: a fenced member may write entries before it detects the fencing. The next owner of a partition reads the
request before it plans a batch, and a replayed batch omits partitions that will be reset. If a member is killed between
its commit and its entry, the next owner repeats the commit. Requests that are not yet applied become part of the next
request, with all their topics. If the last member leaves before it has read the request, the requester commits the positions and cancels the
request.

Reading the metadata groups costs one request per batch, beside the request for end offsets. A query without permission
logs a warning once, and cannot be reset while it runs. A query that cannot reach the metadata groups, or that has lost its
permission, retries after half a minute, and the others wait for it. Partitions that it has paused for a reset stay paused, because
others can have applied it.

Each entry of a reset request contains the number of partitions of each topic. So a request in several commits is
complete with the last one. An incomplete request pauses no partition: its requester was killed, its topic was
recreated, or it is forged. After 10 s a member logs a warning about a request that it cannot apply, with the missing
part. It then polls the request every two seconds.

Every principal with Read on a group can write metadata entries. Parsers limit them (``streamgroups/json_values``):
integers of at most 64 bits, no ``Infinity``, limited depth and length. An invalid entry counts as missing, and one
warning names its group and partition.
"""
