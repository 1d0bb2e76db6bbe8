"""Queues of dead letters in Kafka (SEMANTICS P5).

A selection of letters is no prefix of a partition, so committed offsets cannot store which letters were redriven. Their ids
are in a compacted topic instead, and the transaction that sends the records writes them (``streamgroups_kafka/dlq``). The
transactional id belongs to the queue. A redrive first fences earlier ones, and then reads the ids: until it ends, no other
one can add any. If the queue is a table of PostgreSQL, the ids are in the same kind of topic, because a transaction of Kafka
and one of PostgreSQL cannot commit together. ``streamgroups_sinks/postgres/letters`` reads the rows, and deletes those of redriven
letters later. See ``docs/dlq-cli.rst``.
"""
