"""P4: the contract of the client of schema registries, with a real registry.

``unit_tests/streamgroups_kafka/test_schema_registry.py`` runs the same tests with a fake registry. The real one is Apicurio,
or the one that ``STREAMGROUPS_SCHEMA_REGISTRY=http://localhost:8081`` names.
"""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from streamgroups.decoding.registry import SchemaRegistry
from unit_tests.registry_contract import RegistryContract


class TestRealRegistry(RegistryContract):
    @pytest.fixture
    def registry(self, schema_registry: str) -> SchemaRegistry:
        return SchemaRegistry(schema_registry, {"max.retries": "0"})

    def forbid_changes(self, registry: SchemaRegistry, subject: str) -> None:
        with SchemaRegistryClient({"url": registry.url}) as client:
            client.set_compatibility(subject, "BACKWARD")
