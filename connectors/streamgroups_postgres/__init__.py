"""PostgreSQL: the only package here that imports psycopg. A sink whose output and ledger change in one transaction."""

try:
    import psycopg as _psycopg  # noqa: F401
except ImportError as e:
    raise ImportError("The PostgreSQL sink needs psycopg 3: pip install 'streamgroups[postgres]'") from e
