"""PostgreSQL: a sink that changes output and ledger in one transaction. Only this package imports psycopg."""
