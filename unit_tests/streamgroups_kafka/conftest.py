"""What tests of the encoders share."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from streamgroups_kafka import native
from streamgroups_kafka.native import ENCODER_VARIABLE
from unit_tests.requirements import without


@pytest.fixture(scope="module")
def extension() -> Any:
    if not native.encoder_status().available:
        without("native", native.encoder_status().reason)
    return importlib.import_module("streamgroups_kafka._native")


@pytest.fixture(params=["native", "plain"])
def using(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which encoder is at work."""
    if request.param == "native" and not native.encoder_status().available:
        without("native", native.encoder_status().reason)
    monkeypatch.setenv(ENCODER_VARIABLE, request.param)
    return str(request.param)
