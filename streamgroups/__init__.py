"""streamgroups: Kafka consumer groups for Spark Structured Streaming.

What a user imports as ``sg``. Names that need Spark or a Kafka client are loaded when they are first used, so that
``import streamgroups`` is quick and needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgroups._version import __version__

if TYPE_CHECKING:
    from streamgroups_spark.registering import register

__all__ = ["__version__", "register"]

_WHERE = {"register": "streamgroups_spark.registering"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'streamgroups' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
