"""HTML reports: the ownership of partitions and the progress of event time."""
