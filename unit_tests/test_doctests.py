"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("streamgroups", "streamgroups_kafka", "streamgroups_spark", "streamgroups_broker")


def _modules() -> list[str]:
    found = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found += [m.name for m in pkgutil.walk_packages(path, f"{package}.") if not m.name.endswith("__main__")]
    return found


@pytest.mark.parametrize("name", _modules())
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed
