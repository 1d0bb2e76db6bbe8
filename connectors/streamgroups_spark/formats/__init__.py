"""The formats ``streamgroups``, as ``sg.register`` and ``pyspark_streamgroups`` register them with Spark."""
