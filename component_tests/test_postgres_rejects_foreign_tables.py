"""X2: a table that another role has put on the search path is not written, and errors contain neither rows nor
passwords.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from component_tests.postgres_process import GROUP, execute, sink, token
from streamgroups.errors import RecordRejected, SinkRejected
from streamgroups_testkit.postgres import PASSWORD, WITH_PASSWORD

SCHEMA = pa.schema({"id": pa.int64()})
LEDGER = (
    "CREATE TABLE {} (group_id text, topic text, partition int, next_offset bigint NOT NULL, cluster_id text, topic_id text, "
    "updated_at timestamptz NOT NULL, "
    "PRIMARY KEY (group_id, topic, partition))"
)
GRANTS = "GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC"


@pytest.fixture
def user(postgres: str) -> Iterator[str]:
    """The connection string of a role that is not a superuser. All roles can write to the schema ``public``, as before
    PostgreSQL 15.
    """
    execute(postgres, "GRANT CREATE ON SCHEMA public TO PUBLIC", "CREATE ROLE mallory", "CREATE ROLE team")
    yield make_conninfo(postgres, user=WITH_PASSWORD, password=PASSWORD)
    execute(postgres, "DROP OWNED BY mallory, team", "DROP ROLE mallory, team")


def test_a_ledger_of_another_role(postgres: str, user: str) -> None:
    execute(postgres, "SET ROLE mallory", LEDGER.format("streamgroups_ledger"), GRANTS)
    with (
        pytest.raises(SinkRejected, match=r"found on the search path and belongs to role 'mallory'.*REVOKE CREATE"),
        sink(user).open(GROUP),
    ):
        pass
    with sink(user, ledger_table="public.streamgroups_ledger").open(GROUP):
        pass


def test_a_superuser_trusts_no_other_role_either(postgres: str, user: str) -> None:
    execute(postgres, "SET ROLE mallory", LEDGER.format("streamgroups_ledger"))
    with pytest.raises(SinkRejected, match="belongs to role 'mallory'"), sink(postgres).open(GROUP):
        pass


def test_a_ledger_of_a_role_that_the_user_is_a_member_of(postgres: str, user: str) -> None:
    execute(postgres, f"GRANT team TO {WITH_PASSWORD}", "SET ROLE team", LEDGER.format("streamgroups_ledger"))
    with sink(user).open(GROUP):
        pass


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        (
            "CREATE TRIGGER t BEFORE INSERT ON own FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "triggers",
        ),
        ("CREATE RULE r AS ON UPDATE TO own DO ALSO NOTHING", "rules"),
        ("ALTER TABLE own ENABLE ROW LEVEL SECURITY", "row-level security"),
    ],
)
def test_nothing_else_may_act_on_the_ledger(postgres: str, trap: str, message: str) -> None:
    execute(postgres, LEDGER.format("own"), trap.replace("BEFORE INSERT", "BEFORE UPDATE"))
    with (
        pytest.raises(SinkRejected, match=f"The ledger public.own has {message}, which can change its positions"),
        sink(postgres, ledger_table="public.own").open(GROUP),
    ):
        pass


def test_a_target_of_another_role(postgres: str, user: str) -> None:
    execute(postgres, "SET ROLE mallory", "CREATE TABLE flights (id int8)", GRANTS)
    with pytest.raises(
        SinkRejected, match=r"Table public.flights was found on the search path and belongs to role 'mallory'"
    ):
        sink(user).begin(SCHEMA, token())
    sink(user, table="public.flights").begin(SCHEMA, token())


def test_an_error_shows_no_row(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 NOT NULL CHECK (id > 0), iban text)")
    to = sink(postgres)
    begun = to.begin(pa.schema({"id": pa.int64(), "iban": pa.string()}), token())
    secret = "-".join(["SECRET", "IBAN"])
    with pytest.raises(RecordRejected) as rejected:
        to.write(begun, iter([pa.record_batch({"id": pa.array([None], pa.int64()), "iban": [secret]})]), 0)
    assert secret not in "".join(traceback.format_exception(rejected.value))
