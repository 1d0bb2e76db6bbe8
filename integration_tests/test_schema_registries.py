"""P4: the contract of the client of schema registries, with a real registry.

``STREAMGROUPS_SCHEMA_REGISTRY=http://localhost:8081`` names it: Confluent's Schema Registry, Karapace, Apicurio
(``/apis/ccompat/v7``) or Redpanda. Without it, ``unit_tests/streamgroups_kafka/test_schema_registry.py`` runs the same tests
with a fake registry.
"""

from __future__ import annotations

import os

import pytest

from streamgroups.decoding.registry import SchemaRegistry
from unit_tests.registry_contract import RegistryContract

VARIABLE = "STREAMGROUPS_SCHEMA_REGISTRY"


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no registry")
class TestRealRegistry(RegistryContract):
    @pytest.fixture
    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(os.environ[VARIABLE], {"max.retries": "0"})
