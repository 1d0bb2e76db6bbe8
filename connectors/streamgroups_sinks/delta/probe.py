"""Probes the location of Delta tables for ``streamgroups connections test``: the login of the store, reads, writes and commits.

Only a test with a write creates files, and deletes them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streamgroups.connections.secret_names import secrets_in
from streamgroups.connections.variants import DeltaConnection
from streamgroups.doctor.check_results import CheckResult, ok, problem
from streamgroups.errors import StreamGroupsError
from streamgroups_sinks.delta.atomic_commits import has_lock
from streamgroups_sinks.delta.connected import address_in, storage_options_of
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.store_errors import translating

#: The commits at the same time. Without conditional writes at least one of four replaces another one.
_COMMITS = 4


def probe_location(connection: DeltaConnection, tables: Sequence[str], *, writes: bool) -> list[CheckResult]:
    """Returns what the user of a connection may do.

    Args:
        connection: the connection.
        tables: tables that must be readable, by their paths in the location.
        writes: whether to create a file and, in an object store, a table of five commits, and delete them.

    Raises:
        InvalidOption: if a secret cannot be resolved, or a table is outside the location.
        StreamGroupsError: if the store does not respond, or rejects the login.
    """
    options = dict(storage_options_of(connection, {}, connection.location))
    location = connection.location
    addresses = {table: address_in(connection, table) for table in tables}
    with translating("reading", location, lambda: secrets_in(options)):
        store = Store(location, options)
        count = len(store.names())
    found = [ok("read", f"{location} can be listed.", f"{count} entries")]
    for table, address in addresses.items():
        found.append(_table(table, address, options))
    if writes:
        found.append(_write(store, location, options))
        # The entries of the test would stay in the table of the lock.
        if not store.is_local and not has_lock((*options, *os.environ)):
            found.append(_commit(location, options))
    return found


def _table(table: str, address: str, options: dict[str, str]) -> CheckResult:
    try:
        with translating("reading", address, lambda: secrets_in(options)):
            version = DeltaTable(address, storage_options=options).version()
    except StreamGroupsError as e:
        return problem("table", e.what, e.remedy)
    return ok("table", f"Table '{table}' can be read.", f"version {version}")


def _write(store: Store, location: str, options: dict[str, str]) -> CheckResult:
    name, rows = f"_streamgroups_test_{uuid.uuid4().hex}", pa.table({"n": [1]})
    try:
        with translating("writing to", location, lambda: secrets_in(options)):
            store.write_parquet(name, rows)
            same = store.read_parquet(name) == rows
            store.delete(name)
    except StreamGroupsError as e:
        return problem("write", e.what, e.remedy)
    if not same:
        return problem("write", f"A file in {location} has another content than was written.", "Check the store.")
    return ok("write", f"A file in {location} was written, read and deleted.")


def _commit(location: str, options: dict[str, str]) -> CheckResult:
    """Commits from several writers at once. Each of them requests the same version, and only one may get it."""
    address = f"{location.rstrip('/')}/_streamgroups_test_{uuid.uuid4().hex}"
    try:
        with translating("committing to", location, lambda: secrets_in(options)):
            try:
                version = _version_after_commits(address, options)
            finally:
                store = Store(address, options)
                for path in store.sizes(""):
                    store.delete(path)
    except StreamGroupsError as e:
        return problem("commit", e.what, e.remedy)
    if version != _COMMITS:
        return problem(
            "commit",
            f"{_COMMITS - version} of {_COMMITS} commits at the same time to {location} were replaced by others, because its "
            "store ignores If-None-Match. Rows and positions of a table would be lost.",
            "Use a store with conditional writes, or deltalake's lock with DynamoDB (AWS_S3_LOCKING_PROVIDER).",
        )
    return ok("commit", f"{_COMMITS} commits at the same time to {location} were kept.")


def _version_after_commits(address: str, options: dict[str, str]) -> int:
    rows = pa.table({"n": [1]})
    write_deltalake(address, rows, storage_options=options)
    tables = [DeltaTable(address, storage_options=options) for _ in range(_COMMITS)]
    with ThreadPoolExecutor(_COMMITS) as pool:
        for done in [pool.submit(write_deltalake, table, rows, mode="append") for table in tables]:
            done.result()
    return DeltaTable(address, storage_options=options).version()
