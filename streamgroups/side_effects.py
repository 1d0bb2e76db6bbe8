"""Calls of other systems, once for each record: stable batches and keys that identify a call.

Users import the names as ``sg.side_effects``. Source: SEMANTICS X4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.stable_input.idempotency import idempotency_key as idempotency_key
    from streamgroups_spark.stable_input.batches import StableBatch as StableBatch
    from streamgroups_spark.stable_input.batches import StableBatches as StableBatches
    from streamgroups_spark.stable_input.batches import stable_batches as stable_batches

_PLACES = places(
    {
        "streamgroups_spark.stable_input.batches": "StableBatch StableBatches stable_batches",
        "streamgroups.stable_input.idempotency": "idempotency_key",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
