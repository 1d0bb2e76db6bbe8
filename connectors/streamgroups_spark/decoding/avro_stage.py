"""Avro values of a DataFrame: the codecs that run in tasks, and the schemas that the driver requests for them.

Called by ``decoding.decode_encode`` on the driver. Source: SEMANTICS P4.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType

from streamgroups.decoding.formats import Avro
from streamgroups.decoding.registry import RegisteredSchema, SchemaRegistry
from streamgroups.errors import SchemaRejected
from streamgroups_kafka.schema_registry.client import RegistryClient, client_of
from streamgroups_schemas.avro_types import arrow_type
from streamgroups_schemas.avro_values import AVRO, check_reader, decode_avro, encode_avro
from streamgroups_spark.decoding.python_values import Codec, check_encodable, latest_schema
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.private_spark import from_arrow_type


@dataclass(frozen=True, slots=True)
class AvroDecoder(Shipped):
    """Decodes Avro values in a task."""

    reader: RegisteredSchema
    registry: SchemaRegistry | None

    def __call__(self, values: pa.Array) -> pa.Array:
        """Returns the result and the problem of each value."""
        return decode_avro(values, self.reader, None if self.registry is None else client_of(self.registry))


@dataclass(frozen=True, slots=True)
class AvroEncoder(Shipped):
    """Encodes structs as Avro in a task.

    Args:
        schema: the schema.
        registry: the registry of the id that precedes each value. ``None``: values have no id.
        new_subject: the subject in which the task registers the schema. ``None``: it is registered.
    """

    schema: RegisteredSchema
    registry: SchemaRegistry | None
    new_subject: str | None = None

    def __call__(self, values: pa.Array) -> pa.Array:
        """Returns the result and the problem of each struct.

        Raises:
            StreamGroupsError: if the registry does not answer, or rejects a new schema.
        """
        schema = self.schema
        if self.registry is not None and self.new_subject is not None:
            # The client of the tasks caches the id. A second registration of a schema returns the same id.
            schema_id = client_of(self.registry).id_of(self.new_subject, AVRO, schema.text, register=True)
            schema = RegisteredSchema(schema_id, AVRO, schema.text)
        return encode_avro(values, schema, has_header=self.registry is not None)


def decoder(avro: Avro) -> tuple[Codec, DataType]:
    """Returns the codec of a format, and the type of its results.

    Raises:
        InvalidOption: if the reader's schema is invalid, or has a type without an equivalent.
        StreamGroupsError: if the registry does not answer, or does not have the subject.
    """
    reader = _schema(avro)
    check_reader(reader)
    return AvroDecoder(reader, avro.registry), _type(reader)


def encoder(avro: Avro, type_: DataType) -> Codec:
    """Returns the codec that encodes a column of a type.

    A DataFrame that is never evaluated must have no effect, so the tasks register a new schema.

    Raises:
        InvalidOption: if the column does not have the fields of the schema.
        StreamGroupsError: if the registry does not answer, or does not have the schema and may not register it.
    """
    schema, subject = _schema(avro), str(avro.subject)
    check_encodable(type_, _type(schema))
    if avro.registry is not None and avro.schema is not None:
        try:
            # A new client for each build, as for the latest schema: the subject or its password can have changed.
            with RegistryClient(avro.registry) as client:
                found = client.id_of(subject, AVRO, avro.schema, register=False)
        except SchemaRejected:
            if not avro.register:
                raise
            return AvroEncoder(schema, avro.registry, new_subject=subject)
        schema = RegisteredSchema(found, AVRO, avro.schema)
    return AvroEncoder(schema, avro.registry)


def _schema(avro: Avro) -> RegisteredSchema:
    if avro.schema is not None:
        return RegisteredSchema(0, AVRO, avro.schema)
    return latest_schema(avro, AVRO)


def _type(schema: RegisteredSchema) -> DataType:
    return from_arrow_type(arrow_type(schema.text, schema.references), prefer_timestamp_ntz=True)
