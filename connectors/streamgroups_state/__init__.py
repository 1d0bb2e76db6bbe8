"""State of operators in files: on a local disk, a shared file system or an object store (SEMANTICS S10).

Arrow reads and writes the files. This package imports neither Spark nor a Kafka client.
"""
