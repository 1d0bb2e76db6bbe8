"""Secrets that a campaign plants, and the search for them at its end (I10). Used by ``campaign.running``.

The queries have them as passwords of clients, in the connection string of PostgreSQL, and in the text of an error that a lost response
raises. The plain cluster and the server do not check passwords. The search covers all files of the campaign: logs with
plans and progress reports, checkpoints, states, histories and event files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from integration_tests.history.events import LogsSearched
from integration_tests.history.outputs_read import now_ms
from integration_tests.secret_forms import forms_of

#: The text that a lost response adds to its error, see ``dying/sitecustomize.py``.
ERROR = "STREAMGROUPS_PLANTED"
#: The settings of clients that contain a secret.
_SETTINGS = ("sasl.password", "ssl.key.password")
_PART_BYTES = 8 << 20


def new_secret() -> str:
    """A secret whose encoded forms differ from it."""
    return f"pl@nted+{uuid.uuid4().hex[:16]}/x"


@dataclass(frozen=True, slots=True)
class Planted:
    """The secrets of one campaign.

    Args:
        client: the password of Kafka clients.
        database: the password of the database.
        error: a password in the text of an error.
    """

    client: str = field(default_factory=new_secret)
    database: str = field(default_factory=new_secret)
    error: str = field(default_factory=new_secret)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a Kafka client."""
        return dict.fromkeys(_SETTINGS, self.client)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the queries."""
        return {ERROR: f"The login has password={self.error}"}

    def conninfo(self, conninfo: str) -> str:
        """A connection string with the password."""
        return f"{conninfo} password='{self.database}'"

    def search(self, directory: Path, others: Mapping[str, str] = MappingProxyType({})) -> LogsSearched:
        """Searches all files of a directory for the secrets.

        Args:
            directory: the directory of the campaign.
            others: other secrets by their names.
        """
        forms = {
            form: (name, how)
            for name, secret in {**self._secrets(), **others}.items()
            for form, how in forms_of(secret).items()
        }
        n_files = n_bytes = 0
        findings: list[str] = []
        for path in sorted(it for it in directory.rglob("*") if it.is_file() and not it.is_symlink()):
            found = {forms[form] for form in _found_in(path, list(forms))}
            findings += [f"{path.relative_to(directory)}: the password of {name}, {how}" for name, how in sorted(found)]
            n_files, n_bytes = n_files + 1, n_bytes + path.stat().st_size
        return LogsSearched(now_ms(), "injector", n_files, n_bytes, tuple(findings))

    def _secrets(self) -> Mapping[str, str]:
        return {"the client": self.client, "the database": self.database, "an error": self.error}


def _found_in(path: Path, forms: list[bytes]) -> Iterator[bytes]:
    """The forms that a file contains. Parts of the file overlap, so that none is missed."""
    overlap, end = max(map(len, forms)), b""
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            text = end + part
            yield from (it for it in forms if it in text)
            end = text[-overlap:]
