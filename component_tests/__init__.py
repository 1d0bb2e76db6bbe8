"""Component tests of PostgreSQL, Delta Lake and object stores on servers of this machine, without Spark and without a
broker. ``make component`` runs them.
"""
