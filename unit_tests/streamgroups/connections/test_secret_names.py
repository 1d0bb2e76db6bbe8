"""The settings that are secrets, of all systems that a connection can have."""

from __future__ import annotations

import pytest
from psycopg import pq

from streamgroups.connections.secret_names import is_secret, secret_parameter

#: Of ``object_store`` in deltalake 1.6.
STORAGE_SECRETS = """
AWS_SECRET_ACCESS_KEY secret_access_key aws_session_token aws_token session_token token
aws_sse_customer_key_base64 sse_customer_key_base64
azure_storage_account_key azure_storage_access_key azure_storage_master_key account_key access_key master_key
azure_storage_client_secret azure_client_secret client_secret azure_storage_sas_key azure_storage_sas_token sas_key sas_token
azure_storage_token bearer_token azure_fabric_session_token google_service_account_key service_account_key
"""
STORAGE_OPTIONS = """
AWS_ACCESS_KEY_ID access_key_id AWS_REGION AWS_ENDPOINT_URL aws_sse_kms_key_id aws_sse_bucket_key_enabled
aws_web_identity_token_file azure_federated_token_file azure_storage_client_id azure_storage_account_name
google_service_account_path google_application_credentials allow_http timeout
"""
#: libpq marks only passwords. These are keys of a login, too.
LIBPQ_KEYS = {"scram_client_key", "scram_server_key"}


@pytest.mark.parametrize("name", STORAGE_SECRETS.split())
def test_a_secret_of_a_store(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize("name", STORAGE_OPTIONS.split())
def test_an_option_of_a_store_that_is_no_secret(name: str) -> None:
    assert not is_secret(name, "x")


def test_the_secrets_of_libpq() -> None:
    parameters = {it.keyword.decode(): it.dispchar == b"*" for it in pq.Conninfo.get_defaults()}
    for name, is_marked in parameters.items():
        expected = is_marked or name in LIBPQ_KEYS
        assert is_secret(name, "x") == expected
        for conninfo in (f"host=db {name} = x", f"host='db'{name}='x'", f"postgresql://db/flights?a=b&{name}=x"):
            assert secret_parameter(conninfo) == (name if expected else None)
            assert is_secret("conninfo", conninfo) == expected


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("postgresql://me:hunter22@db/flights", "password"),
        ("postgresql://:hunter22@db/flights", "password"),
        ("postgresql://ann:hunt/er22@db/x", "password"),
        ("s3://AKIA:abc/def]SECRET@bucket/t", "password"),
        ("https://proxy:8080/a@b", None),
        ("abfss://container@account.dfs.core.windows.net/x:y@z", None),
        ("s3://bucket/a:b@c", None),
        ("postgresql://db/flights?ssl%70assword=hunter22", "sslpassword"),
        ("host=db PASSWORD=hunter22", "PASSWORD"),
        ("AccountName=me;AccountKey=hunter22", "AccountKey"),
        ("postgresql://me@db:5432/flights?sslmode=require", None),
        ("host=db user=me sslkey=/run/me.key passfile=/run/pass require_auth=password", None),
        ("s3://bucket/token=1/tables", None),
        ("/run/secrets/password", None),
    ],
)
def test_the_secret_in_a_connection_string(value: str, found: str | None) -> None:
    assert secret_parameter(value) == found
