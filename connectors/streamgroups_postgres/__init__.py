"""PostgreSQL: the only package here that imports psycopg. A sink whose output and ledger change in one transaction."""
