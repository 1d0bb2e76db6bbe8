"""On a real broker the ports do the same as in memory: the contracts of ``unit_tests.port_contracts``, without
Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.real_cluster import RealCluster
from unit_tests.port_contracts import ClusterContract, MemberContract, MetadataStoreContract, RecordsContract

#: Raised inside librdkafka's binding, which has no other interface to read subscriptions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def outside(bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]) -> Iterator[RealCluster]:
    with closing(RealCluster(bootstrap, admin, new_topic)) as real:
        yield real


class TestKafkaCluster(ClusterContract):
    pass


class TestRecordReader(RecordsContract):
    pass


class TestKafkaMetadataStore(MetadataStoreContract):
    pass


class TestAdminMetadataStore(MetadataStoreContract):
    """The metadata store of the command line; the members read its entries with theirs."""

    @pytest.fixture
    def outside(self, outside: RealCluster) -> RealCluster:
        outside.swap_metadata_stores()
        return outside


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
class TestKafkaMember(MemberContract):
    @pytest.fixture
    def outside(
        self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], protocol: str
    ) -> Iterator[RealCluster]:
        with closing(RealCluster(bootstrap, admin, new_topic, protocol)) as real:
            yield real
