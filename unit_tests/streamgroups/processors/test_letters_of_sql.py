"""P4: SQL behind a step with state keeps its dead letters, or is rejected."""

from __future__ import annotations

import pytest

from streamgroups.processors.letters_of_sql import keeps_letters

_OR = "dead_letter IS NOT NULL OR"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT key, n, dead_letter FROM input",
        "select *\nfrom INPUT;",
        "SELECT i.*, upper(i.key) AS k FROM input i",
        "SELECT `dead_letter`, concat(key, ', ') AS k FROM input AS i",
        "SELECT input.dead_letter, n FROM input WHERE input.dead_letter IS NOT NULL OR n > 2",
        f"SELECT * FROM input WHERE {_OR} n > 2 AND key = ' where '",
        f"SELECT * FROM input\nWHERE\t{_OR.lower()}(n > 2)",
        f"SELECT * -- WHERE n > 2\nFROM input /* LIMIT 3 */ WHERE {_OR} key LIKE '%\\'%' OR `limit` > 2",
        f"SELECT key, dead_letter FROM input i WHERE i.{_OR} NOT n > 2",
        "SELECT topic, partition, offset, i.order, window, dead_letter FROM input i",
        "SELECT extract(HOUR FROM window_start) AS h, i.dead_letter, trim(BOTH FROM a) FROM input i",
    ],
)
def test_P4_sql_keeps_letters(text: str) -> None:
    assert keeps_letters(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT key, n FROM input",
        "SELECT NULL AS dead_letter FROM input",
        "SELECT key AS dead_letter FROM input",
        "SELECT coalesce(NULL, dead_letter), key FROM input",
        "SELECT 'a, dead_letter' FROM input",
        "SELECT s.dead_letter FROM input i",
        "SELECT DISTINCT key, dead_letter FROM input",
        "SELECT key, explode(parts) AS part, dead_letter FROM input",
        "SELECT MAP key, dead_letter USING 'cat' AS (key, dead_letter) FROM input",
        # Conditions.
        "SELECT key, n, dead_letter FROM input WHERE n > 2",
        "SELECT * FROM input WHERE(n > 2)",
        "SELECT * FROM input WHERE n > 2 AND dead_letter IS NULL",
        "SELECT * FROM input\nWHERE\nn > 2 -- dead_letter IS NOT NULL OR",
        "SELECT * FROM input WHERE dead_letter IS NULL OR n > 2",
        f"SELECT * FROM input WHERE ({_OR} n > 2) AND n < 9",
        f"SELECT * FROM input WHERE NOT {_OR} n > 2",
        f"SELECT * FROM input WHERE key = '{_OR}'",
        f"SELECT * FROM input WHERE n > 2 OR key = '\\' WHERE {_OR} '",
        f"SELECT * FROM input AS i WHERE other.{_OR} n > 2",
        f"SELECT * FROM input WHERE /* /* */ {_OR} */ n > 2",
        f"SELECT * FROM input -- \\\n WHERE {_OR} n > 2\nWHERE n > 2",
        # Other clauses.
        f"SELECT * FROM input WHERE {_OR} n > 2 LIMIT 3",
        f"SELECT * FROM input WHERE {_OR} n > 2 |> WHERE n > 2",
        f"SELECT * FROM input WHERE {_OR} n > 2 QUALIFY row_number() OVER (ORDER BY n) = 1",
        "SELECT count(*) AS n, dead_letter FROM input GROUP BY dead_letter HAVING n > 2",
        "SELECT * FROM input ORDER BY n OFFSET 1",
        "SELECT * FROM input TABLESAMPLE (10 PERCENT)",
        "SELECT * FROM input LATERAL VIEW explode(parts) p AS part",
        # Several tables.
        "SELECT * FROM input, names",
        "SELECT * FROM input i JOIN names USING (key)",
        f"SELECT * FROM input JOIN names WHERE {_OR} n > 2",
        f"SELECT * FROM input CROSS JOIN names WHERE {_OR} n > 2",
        "SELECT * FROM input.names",
        "SELECT * FROM input t (key, dead_letter, n)",
        "SELECT * FROM input UNION ALL SELECT * FROM input",
        "SELECT * FROM (SELECT * FROM input WHERE n > 2)",
        f"SELECT * FROM input WHERE {_OR} key IN (SELECT key FROM input)",
        "WITH input AS (SELECT * FROM input WHERE n > 2) SELECT * FROM input",
        "FROM input |> WHERE n > 2",
        "VALUES (1)",
        # Texts that the lexer does not understand.
        "SELECT *, $$ FROM input WHERE dead_letter IS NOT NULL OR $$ FROM input WHERE n > 2",
        "SELECT /*+ COALESCE(1) */ * FROM input",
        "SELECT * FROM input WHERE key = 'a",
    ],
)
def test_P4_sql_that_can_lose_letters_is_rejected(text: str) -> None:
    assert not keeps_letters(text)
