"""The password of the queries is changed while they run. Used by ``campaign.cluster_faults``.

The queries have a connection whose password is in a file (``docs/connections.rst``). An administrator changes the password in the broker
and then the file. The broker requires a new login of each connection after some seconds. So clients with the old password fail, and
``sg.supervise`` restarts their query, which reads the file again. Source: KIP-84, KIP-368.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from integration_tests.campaign.credentials import USER
from integration_tests.campaign.members import CampaignMember, count_in
from integration_tests.campaign.planted import new_secret
from integration_tests.campaign.targets import all_advance
from integration_tests.secured_brokers import Listeners
from streamgroups_testkit.waits import wait_until

ROTATION = "rotation"
#: The name of the connection.
CONNECTION = "campaign"
_MECHANISM, _ITERATIONS = "SCRAM-SHA-256", 4096
#: Each connection of the listener logs in again after this time.
ROTATION_PROPERTIES = {"listener.name.login.scram-sha-256.connections.max.reauth.ms": "10000"}
_REPEATED_S = 22.0
#: The text of ``sg.supervise`` for a query that fails. Its error depends on the client that logs in first. A program without a finished
#: batch ends with it, and the campaign starts it again.
_FAILED = "failed and "
#: The longest time until a query fails with the old password, and until the group continues with the new one.
_NOTICED_S, _STARTED_S = 90.0, 240.0


class Rotation:
    """The connection of the queries, and its passwords.

    Args:
        listeners: the broker.
        directory: a directory that is not searched for secrets. :meth:`close` removes it.
    """

    def __init__(self, listeners: Listeners, directory: Path) -> None:
        self._listeners, self._file = listeners, directory / "password"
        #: All passwords by their names. No file of the campaign may contain one.
        self.passwords: dict[str, str] = {}
        #: How often the password was changed, and how often a query has failed then.
        self.n_rotations, self.n_errors = 0, 0
        self._change()
        self._config = directory / "connections.toml"
        self._config.write_text(
            f"""\
[connections.{CONNECTION}]
type = "kafka"
bootstrap-servers = "{listeners.login}"

[connections.{CONNECTION}.settings]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "{_MECHANISM}"
"sasl.username" = "{USER}"
"sasl.password" = {{ file = "{self._file}" }}
"""
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the queries."""
        return {"STREAMGROUPS_CONFIG": str(self._config)}

    def rotate(
        self,
        members: Sequence[CampaignMember],
        committed: Callable[[], Mapping[int, int]],
        see_to_all: Callable[[], bool],
    ) -> None:
        """Changes the password.

        Args:
            members: the members.
            committed: returns the committed offsets.
            see_to_all: starts the members that are not running.

        Raises:
            AssertionError: if no query fails with the old password, or the group does not continue with the new one.
        """
        logs = [it.log for it in members]

        def errors() -> int:
            return count_in(logs, _FAILED)

        before = errors()
        self._change()
        self.n_rotations += 1
        began_s = time.monotonic()
        wait_until(lambda: see_to_all() and errors() > before, "a query with the old password fails", _NOTICED_S, 1.0)
        # Then no connection has a login with the old password.
        wait_until(lambda: see_to_all() and time.monotonic() - began_s > _REPEATED_S, "all connections have logged in")
        offsets = committed()
        wait_until(
            lambda: see_to_all() and all_advance(offsets, committed()),
            "the group continues with the new password",
            _STARTED_S,
            1.0,
        )
        self.n_errors += errors() - before

    def close(self) -> None:
        """Removes the passwords."""
        shutil.rmtree(self._file.parent)

    def _change(self) -> None:
        password = new_secret()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        admin = AdminClient({"bootstrap.servers": self._listeners.plain, "log_level": 0})
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)
        new = self._file.with_suffix(".new")
        new.touch(0o600)
        new.write_text(password)
        new.replace(self._file)
        self.passwords[f"a login, number {len(self.passwords) + 1}"] = password
