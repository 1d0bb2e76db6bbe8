"""A user without a home directory, as in a container with a user id of its own."""

from __future__ import annotations

import pwd

import pytest


def remove_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes ``HOME``, the variables of the XDG Base Directory Specification, and the name of the user."""

    def fail(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("STREAMGROUPS_CONFIG", "STREAMGROUPS_PROCESSORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", fail)
