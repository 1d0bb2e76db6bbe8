"""The Spark side of streamgroups: the data source, translated to and from the decisions in ``streamgroups``."""
