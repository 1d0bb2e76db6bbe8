"""Protobuf values of a DataFrame: the codecs that run in tasks, and the schemas that the driver requests for them.

Called by ``decoding.decode_encode`` on the driver. Source: SEMANTICS P4.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType

from streamgroups.decoding.formats import Protobuf
from streamgroups.decoding.registry import SchemaRegistry
from streamgroups.errors import InvalidOption
from streamgroups_kafka.schema_registry.client import client_of
from streamgroups_schemas.protobuf_types import arrow_type
from streamgroups_schemas.protobuf_values import PROTOBUF, MessageSchema, decode_protobuf, encode_protobuf
from streamgroups_spark.decoding.python_values import Codec, check_encodable, latest_schema
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.private_spark import from_arrow_type


@dataclass(frozen=True, slots=True)
class ProtobufDecoder(Shipped):
    """Decodes Protobuf values in a task."""

    reader: MessageSchema
    registry: SchemaRegistry | None

    def __call__(self, values: pa.Array) -> pa.Array:
        """Returns the result and the problem of each value."""
        return decode_protobuf(values, self.reader, None if self.registry is None else client_of(self.registry))


@dataclass(frozen=True, slots=True)
class ProtobufEncoder(Shipped):
    """Encodes structs as Protobuf in a task."""

    schema: MessageSchema

    def __call__(self, values: pa.Array) -> pa.Array:
        """Returns the result and the problem of each struct."""
        return encode_protobuf(values, self.schema)


def decoder(protobuf: Protobuf) -> tuple[Codec, DataType]:
    """Returns the codec of a format, and the type of its results.

    Raises:
        InvalidOption: if the reader's schema is invalid, or has a type without an equivalent.
        StreamGroupsError: if the registry does not answer, or does not have the subject.
    """
    if protobuf.descriptor_set is not None:
        reader = MessageSchema(protobuf.message, protobuf.descriptor_set)
    else:
        reader = MessageSchema(protobuf.message, registered=latest_schema(protobuf, PROTOBUF))
    return ProtobufDecoder(reader, protobuf.registry), _type(reader)


def encoder(protobuf: Protobuf, type_: DataType) -> Codec:
    """Returns the codec that encodes a column of a type.

    Raises:
        InvalidOption: if the column does not have the fields of the message.
        StreamGroupsError: if the registry does not answer, or does not have the subject.
    """
    if protobuf.registry is None:
        schema = MessageSchema(protobuf.message, protobuf.descriptor_set)
    elif protobuf.descriptor_set is not None:
        raise InvalidOption(
            "sg.encode with a registry uses the latest schema of the subject, and sg.schemas.Protobuf has a descriptor set.",
            remedy="Remove 'descriptor_set'.",
        )
    else:
        schema = MessageSchema(protobuf.message, registered=latest_schema(protobuf, PROTOBUF))
    check_encodable(type_, _type(schema))
    return ProtobufEncoder(schema)


def _type(schema: MessageSchema) -> DataType:
    return from_arrow_type(arrow_type(schema.message()), prefer_timestamp_ntz=True)
