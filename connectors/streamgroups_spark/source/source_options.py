"""The options of ``format("streamgroups")``: those of the read and those of its Kafka clients, checked before the query starts.

Called by ``source.readers`` when Spark creates the data source. Names are case-insensitive, as in Spark.
:mod:`streamgroups.query.source_settings` parses the options of the read. Source: SEMANTICS S4, S5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from streamgroups.durations import exact
from streamgroups.errors import InvalidOption
from streamgroups.groups.batch_lease import DEFAULT_REBALANCE_TIMEOUT_MS, lease_limits
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.subscription import Partitions
from streamgroups.option_values import KAFKA, own_and_kafkas
from streamgroups.query.source_settings import OPTION_NAMES, SourceSettings, source_settings
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.connected import connected_settings, of_connection


@dataclass(frozen=True, slots=True)
class SourceOptions(SourceSettings):
    """The parsed options of a read.

    Args:
        client: the configuration of the Kafka clients.
        ignored: given options without effect, for one log line.
    """

    client: ClientConfig
    ignored: tuple[str, ...]


def parse(options: Mapping[str, str], *, streaming: bool, connections_file: str | None = None) -> SourceOptions:
    """Parses and checks all options.

    Args:
        options: the options from Spark. Names are case-insensitive.
        streaming: whether they belong to ``readStream``. Otherwise to ``read``.
        connections_file: the path of the file of connections. ``None``: the one of this process.

    Raises:
        InvalidOption: for the first invalid option. The error contains its name, its value and the permitted values.

    >>> parse({"subscrib": "t"}, streaming=True)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'subscrib' is unknown. Did you mean 'subscribe'?
    """
    known, kafka = own_and_kafkas(
        options,
        OPTION_NAMES,
        unknown="is unknown",
        no_path=lambda path: InvalidOption(
            f"load('{path}') has a path, but topics have no path.", remedy="Use option 'subscribe' and load()."
        ),
    )
    connected = connected_settings(known.get("connection"), kafka, connections_file=connections_file)
    kafka = connected.values
    settings = source_settings(known, streaming=streaming, kafka_group_id=kafka.pop("group.id", None))
    client = ClientConfig.from_options(kafka, connected.references)
    _check_target(settings, int(client.get("max.poll.interval.ms") or DEFAULT_REBALANCE_TIMEOUT_MS))
    return SourceOptions(
        **{it.name: getattr(settings, it.name) for it in fields(settings)},
        client=client,
        ignored=(
            *settings.without_effect,
            *(KAFKA + name for name in client.ignored),
            *of_connection(connected.ignored),
        ),
    )


def _check_target(settings: SourceSettings, rebalance_timeout_ms: int) -> None:
    """Rejects a target that is not less than the lease, also the default one."""
    is_alone = settings.mode is MembershipMode.EXCLUSIVE or isinstance(settings.subscription, Partitions)
    lease = lease_limits(settings.lease_timeout_ms, rebalance_timeout_ms, is_exclusive=is_alone, sees_done=True)
    target_ms, lease_ms = settings.limits.target_batch_ms, lease.lease_timeout_ms
    if target_ms is not None and lease_ms is not None and target_ms >= lease_ms:
        raise InvalidOption(
            f"Option 'targetBatchTime' is {exact(target_ms)}, which is not less than the lease of a batch ({exact(lease_ms)}): a "
            "batch within the target would cost the query its partitions.",
            remedy="Set leaseTimeout to at least three times targetBatchTime. Its default is 12 times kafka.max.poll.interval.ms.",
        )
