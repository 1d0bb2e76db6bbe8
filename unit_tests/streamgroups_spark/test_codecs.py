"""Codecs are pickled to workers, where they decode, or name a missing package."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import IntegerType, StructField, StructType

from streamgroups.connections.references import FromEnvironment, Setting
from streamgroups.connections.variants import SchemaRegistryConnection
from streamgroups.decoding.formats import Avro
from streamgroups.decoding.registry import RegisteredSchema, SchemaRegistry
from streamgroups.decoding.wire_format import header
from streamgroups.errors import RegistryUnreachable, SchemaRejected
from streamgroups_schemas.avro_values import AVRO
from streamgroups_schemas.protobuf_values import MessageSchema
from streamgroups_spark.decoding.avro_stage import AvroDecoder, AvroEncoder, encoder
from streamgroups_spark.decoding.protobuf_stage import ProtobufDecoder, ProtobufEncoder
from streamgroups_spark.decoding.validating import Validator
from streamgroups_testkit.schema_registry import FakeSchemaRegistry
from unit_tests.registry_contract import port_of

SCHEMA = '{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}'
DELAYS = StructType([StructField("delay", IntegerType(), nullable=False)])


@pytest.mark.parametrize(
    "codec",
    [
        AvroDecoder(RegisteredSchema(1, AVRO, SCHEMA), SchemaRegistry("http://a:1", {"basic.auth.user.info": "a:b"})),
        AvroEncoder(RegisteredSchema(1, AVRO, SCHEMA), SchemaRegistry("http://a:1"), "flights-value"),
        ProtobufDecoder(MessageSchema("board.Flight", b"x"), None),
        ProtobufEncoder(MessageSchema("board.Flight", b"x")),
        Validator("{}"),
    ],
)
def test_a_codec_is_pickled_with_the_check_of_the_library(codec: object) -> None:
    pickled = cloudpickle.dumps(codec)
    assert pickle.loads(pickled) == codec
    assert b"streamgroups_spark.internals.pickle_checks" in pickled


def test_P4_a_codec_in_a_worker_requests_the_schemas_of_values() -> None:
    with FakeSchemaRegistry() as server:
        schema_id = server.add("flights-value", SCHEMA)
        codec = AvroDecoder(RegisteredSchema(0, AVRO, SCHEMA), SchemaRegistry(server.url, {"max.retries": "0"}))
        values = pa.array([header(schema_id) + b"\x08", header(schema_id + 1), None], pa.binary())
        found = pickle.loads(cloudpickle.dumps(codec))(values)
        assert found.field("result").to_pylist() == [{"delay": 4}, None, None]
        assert [it and it["error_class"] for it in found.field("problem").to_pylist()] == [
            None,
            "UnknownSchemaId",
            None,
        ]
        server.fails_with = 503
        with pytest.raises(RegistryUnreachable):
            codec(pa.array([header(schema_id + 2)], pa.binary()))


def test_a_task_registers_a_new_schema_and_not_the_call_that_builds_the_query() -> None:
    values = pa.array([{"delay": 4}], pa.struct([pa.field("delay", pa.int32(), nullable=False)]))
    with FakeSchemaRegistry() as server:
        registry = SchemaRegistry(server.url, {"max.retries": "0"})
        with pytest.raises(SchemaRejected, match="register=True"):
            encoder(Avro(SCHEMA, registry=registry, subject="flights-value"), DELAYS)
        codec = encoder(Avro(SCHEMA, registry=registry, subject="flights-value", register=True), DELAYS)
        assert not server._subjects
        encoded = [pickle.loads(cloudpickle.dumps(codec))(values).field("result").to_pylist() for _ in range(2)]
        assert encoded == [[header(1) + b"\x08"]] * 2
        assert server._subjects == {"flights-value": [1]}
        known = encoder(Avro(SCHEMA, registry=registry, subject="flights-value"), DELAYS)
        assert known == AvroEncoder(RegisteredSchema(1, AVRO, SCHEMA), registry)


def test_each_build_requests_the_id_of_the_schema() -> None:
    with FakeSchemaRegistry() as server:
        avro = Avro(SCHEMA, registry=SchemaRegistry(server.url, {"max.retries": "0"}), subject="flights-value")
        server.add("flights-value", SCHEMA)
        assert encoder(avro, DELAYS) == AvroEncoder(RegisteredSchema(1, AVRO, SCHEMA), avro.registry)
    with FakeSchemaRegistry(port=port_of(server)) as restored:
        with pytest.raises(SchemaRejected, match="register=True"):
            encoder(avro, DELAYS)
        restored.add("gates-value", '"string"')
        restored.add("flights-value", SCHEMA)
        assert encoder(avro, DELAYS) == AvroEncoder(RegisteredSchema(2, AVRO, SCHEMA), avro.registry)


def test_P3_each_build_uses_the_password_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    port = 0
    for login, subject in (("carol:hunter2", "flights-value"), ("carol:hunter3", "gates-value")):
        monkeypatch.setenv("THE_LOGIN", login)
        with FakeSchemaRegistry(login, port=port) as server:
            port = port_of(server)
            server.add(subject, SCHEMA)
            settings: dict[str, Setting] = {"basic.auth.user.info": FromEnvironment("THE_LOGIN"), "max.retries": "0"}
            registry = SchemaRegistry(connection=SchemaRegistryConnection("registry", server.url, settings))
            encoder(Avro(SCHEMA, registry=registry, subject=subject), DELAYS)
