"""Delta Lake: a sink with its ledger in the log of the table. Only this package imports ``deltalake``.

The log of a Delta table names its files, and each version of the log is written once. So tasks write data files, and
the driver adds them to the log::

    driver   DeltaSink.begin    checks or creates the table, or adds columns
    tasks    DeltaSink.write    Parquet files in a directory of the batch, with the statistics for the log
    driver   commit_batch       reads and compares the positions, writes version n + 1: the files, and a txn action
                                for each source partition
    driver   DeltaSink.discard  deletes files that are not in the log

deltalake's own retries use other conflict rules, so they are disabled (``max_commit_retries=0``). A commit is the next
version after the one in which the positions were read, or it fails. After a conflict the driver reads the positions
again. If they are unchanged, it commits the same files on top of the newer version. If they have changed, the
transaction ends. This applies to appends, overwritten partitions and merges, and to conflicts with any other writer.
For overwritten partitions the list of files is read again, and merges are executed again. A merge without changes
creates no version in deltalake; the positions then get a version of their own. See ``docs/delta.rst``.
"""
