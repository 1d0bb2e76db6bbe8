"""A worker: one Spark driver that runs the processors of an instance, each in a session, a thread and a pool of its own.

Created by ``streamgroups worker run``. :mod:`streamgroups.instances.worker` decides what it starts and stops.
``worker_process`` follows the topic of the instance and applies the decisions, ``entry_queue`` writes heartbeats and observed
states in the background, and ``replica_run`` runs one query with ``sg.supervise``. ``worker_session`` has the settings of its session.

The lease is checked in the thread that follows the topic. A thread that writes would be blocked by a broker that does not respond.
After a pause of the process, this thread reads the topic to its end before the next heartbeat: a worker that the manager
has declared dead then finds its lease removed, and ends. Source: SEMANTICS P2.
"""
