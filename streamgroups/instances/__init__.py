"""Instances: processors, the workers that run them, and the manager that places processors on workers.

An instance is a name and a compacted topic ``streamgroups.<name>``. The topic is its only storage. Each key has one kind of
writer, so no two writers change the same fact:

* commands write definitions and desired states,
* the manager writes placements, with a number that increases, and the release of workers,
* a worker writes its lease, and the observed states of the processors that it runs.

:mod:`~streamgroups.instances.entries` has the JSON forms. The state of the instance is the fold of all entries
(:mod:`~streamgroups.instances.instance_state`). :mod:`~streamgroups.instances.placement` selects workers,
:mod:`~streamgroups.instances.manager` and :mod:`~streamgroups.instances.worker` decide what these processes do next, and
:mod:`~streamgroups.instances.leases` when a worker counts as dead. :mod:`~streamgroups.instances.definition_diff` compares
definitions. ``streamgroups_kafka.instances`` reads and writes the topic.

Two processes can run one processor for a moment: a worker that is frozen, and the next one. The lease and the number of the
placement only shorten this time. The group, the transaction and the ledger of the processor fence the earlier run, as for any
query. Source: SEMANTICS P2; KIP-98 (a second manager fences the first); Kafka Connect, whose worker configurations are compacted
topics too.
"""
