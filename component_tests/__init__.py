"""Promises of what writes to PostgreSQL, Delta Lake and object stores, tested on servers of this machine, without Spark and without a broker."""
