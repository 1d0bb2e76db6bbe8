"""The data source, from its options to the running query."""

from streamgroups_spark.internals.python_worker import freeze_before_imports

# Before the modules of this package are imported. Processes of Spark wait for them.
freeze_before_imports()
