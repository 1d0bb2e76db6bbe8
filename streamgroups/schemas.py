"""Formats of values for ``sg.decode`` and ``sg.encode``, and the client of a schema registry.

Users import the names as ``sg.schemas``. Source: SEMANTICS P4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.decoding.formats import Avro as Avro
    from streamgroups.decoding.formats import Json as Json
    from streamgroups.decoding.formats import Protobuf as Protobuf
    from streamgroups.decoding.registry import SchemaRegistry as SchemaRegistry
    from streamgroups_spark.decoding.validating import validate as validate

_PLACES = places(
    {
        "streamgroups.decoding.formats": "Avro Json Protobuf",
        "streamgroups.decoding.registry": "SchemaRegistry",
        "streamgroups_spark.decoding.validating": "validate",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
