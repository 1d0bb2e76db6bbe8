"""PostgreSQL: a sink that changes output and ledger in one transaction. Only this package imports psycopg.

A transaction of PostgreSQL belongs to one connection, so tasks cannot share it. Tasks write to a stage instead
(``streamgroups/ledgers/staging``)::

    driver   PostgresSink.begin    checks the table; creates the stage: an unlogged table
    tasks    PostgresSink.write    COPY, each attempt under its own number
    driver   commit_batch          locks and compares the positions, writes the rows of the named attempts, advances the
                                   positions, COMMIT
    driver   PostgresSink.discard  drops the stage

The stage has the columns and types of the table, so a value that does not fit fails in its task, with its row. The commit
is then one ``INSERT ... SELECT``. If the table can store all values of the types, tasks store encoded rows in blocks, and the
driver copies them to the table (``streamgroups_sinks/postgres/blocks``). Blocks contain whole rows, because the server reads the
stage in any order.

Timeouts of statements do not end a ``COPY`` whose client has frozen, and its session is not idle. So a session that waits for
the locks of the positions ends such a session (``streamgroups_sinks/postgres/locks``). Positions are locked
by advisory locks, which also cover partitions without a row, and then by ``FOR UPDATE``; with many partitions only by the latter
(``streamgroups_sinks/postgres/position_locks``). Under *read committed* the positions that are read afterwards are current. A server crash empties an unlogged table, which no transaction detects.
So the commit also compares the number of rows. See ``docs/postgres.rst``.
"""
