"""Sources, exactly-once sinks and commands use the trust stores and key stores of Java with a broker that requires
certificates, and with one that requires a login over TLS.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.command_line import groups_command
from integration_tests.secured_brokers import KEY_PASSWORD, SCRAM, STORE_PASSWORD, TlsListeners, tls_broker
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.tiers import LONG
from streamgroups_cli.exits import ExitCode
from streamgroups_kafka import native
from streamgroups_kafka.admin.group_protocol import request_versions, supports_consumer_protocol
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed

N = 20
KINDS = ("pem", "p12", "jks")
TYPES = {"pem": "PEM", "p12": "PKCS12", "jks": "JKS"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsListeners]:
    """A broker with a topic, and the user bob."""
    with tls_broker(tmp_path_factory.mktemp("tls")) as listeners:
        admin = AdminClient({"bootstrap.servers": listeners.plain})
        for made in admin.create_topics([NewTopic(it, 2, 1) for it in ("flights", *KINDS)]).values():
            made.result(30)
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        bob = UserScramCredentialUpsertion("bob", secret, b"right horse")
        admin.alter_user_scram_credentials([bob])["bob"].result(30)
        produce(listeners.plain, "flights", N, partitions=2)
        yield listeners


def trust(broker: TlsListeners, kind: str) -> dict[str, str]:
    password = {} if kind == "pem" else {"ssl.truststore.password": STORE_PASSWORD}
    return {"ssl.truststore.location": f"{broker.stores}/trust.{kind}", "ssl.truststore.type": TYPES[kind], **password}


def mutual(broker: TlsListeners, kind: str) -> dict[str, str]:
    """The settings of a client with a certificate."""
    store = {"ssl.keystore.location": f"{broker.stores}/client.{kind}", "ssl.keystore.type": TYPES[kind]}
    store |= {} if kind == "pem" else {"ssl.keystore.password": STORE_PASSWORD}
    store |= {} if kind == "p12" else {"ssl.key.password": KEY_PASSWORD}
    return {"security.protocol": "SSL", **trust(broker, kind), **store}


def scram(broker: TlsListeners, kind: str) -> dict[str, str]:
    """The settings of a client that logs in over TLS."""
    jaas = f'{SCRAM} username="bob" password="right horse";'
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    return {"security.protocol": "SASL_SSL", **trust(broker, kind), **login}


def prefixed(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("kind", [it if it == "pem" else pytest.param(it, marks=LONG) for it in KINDS])
def test_a_batch_query_reads_over_mutual_tls(broker: TlsListeners, spark: SparkSession, kind: str) -> None:
    assert native.status().available, native.status().reason
    options = {"kafka.bootstrap.servers": broker.mutual, "subscribe": "flights", **prefixed(mutual(broker, kind))}
    assert spark.read.format("streamgroups").options(**options).load().count() == N


@LONG
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_and_a_transaction_over_mutual_tls(
    broker: TlsListeners, spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    group, settings = f"board-{uuid.uuid4().hex[:8]}", mutual(broker, kind)
    source = shared_options(broker.mutual, group, "flights") | prefixed(settings)
    flights = spark.readStream.format("streamgroups").options(**source).load().select("key", "value")
    sink = sg.KafkaSink(bootstrap_servers=broker.mutual, topic=kind, settings=settings)
    run(sg.exactly_once(flights, sink=sink, checkpoint=str(tmp_path)))
    assert {record.key for record in read_committed(broker.plain, kind)} == {str(i).encode() for i in range(N)}
    assert committed_offsets(broker.plain, group, "flights") == {0: N // 2, 1: N // 2}


@pytest.mark.parametrize("kind", KINDS)
def test_the_group_protocol_is_checked_over_tls(broker: TlsListeners, kind: str) -> None:
    for address, settings in ((broker.mutual, mutual(broker, kind)), (broker.scram, scram(broker, kind))):
        host, _, port = address.rpartition(":")
        config = ClientConfig.from_options({"bootstrap.servers": address, **settings})
        assert supports_consumer_protocol(request_versions(config, host, int(port)))


@pytest.mark.parametrize(
    ("listener", "kind"),
    [
        ("mutual", "jks"),
        *(
            pytest.param(listener, kind, marks=LONG)
            for listener, kind in (
                *(("mutual", kind) for kind in ("pem", "p12")),
                *(("scram", kind) for kind in ("pem", "p12", "jks")),
            )
        ),
    ],
)
def test_a_command_with_a_properties_file(broker: TlsListeners, listener: str, kind: str, tmp_path: Path) -> None:
    settings = mutual(broker, kind) if listener == "mutual" else scram(broker, kind)
    group, server = f"board-{uuid.uuid4().hex[:8]}", getattr(broker, listener)
    reset = groups_command(
        tmp_path, server, settings, "reset", group, "--topic", "flights", "--to-offset", "5", "--execute"
    )
    assert reset.returncode == ExitCode.DONE, reset.stderr
    assert committed_offsets(broker.plain, group, "flights") == {0: 5, 1: 5}
    described = groups_command(tmp_path, server, settings, "describe", group, "-o", "json")
    assert described.returncode == ExitCode.DONE, described.stderr
    (found,) = json.loads(described.stdout)["groups"]
    # librdkafka reads the time lag, kafka-python the rest.
    assert found["time_lag_ms"] is not None


def test_a_command_without_a_certificate_names_the_option(broker: TlsListeners, tmp_path: Path) -> None:
    settings = {"security.protocol": "SSL", **trust(broker, "jks")}
    result = groups_command(tmp_path, broker.mutual, settings, "list")
    assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
    assert "Set 'ssl.keystore.location'" in result.stderr
    assert STORE_PASSWORD not in result.stderr


@pytest.mark.parametrize(
    ("listener", "remedy"),
    [
        # Each waits for the timeout of a request, ten seconds.
        pytest.param("mutual", "Set 'kafka.ssl.keystore.location'", marks=LONG),
        pytest.param("scram", "Check 'kafka.sasl.mechanism' and its credentials", marks=LONG),
    ],
)
def test_a_query_that_the_broker_rejects_names_the_option(
    broker: TlsListeners, spark: SparkSession, listener: str, remedy: str
) -> None:
    settings = {"security.protocol": "SSL", **trust(broker, "jks")}
    if listener == "scram":
        settings = scram(broker, "jks")
        settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace("right", "wrong")
    options = {"kafka.bootstrap.servers": getattr(broker, listener), "subscribe": "flights", **prefixed(settings)}
    with pytest.raises(AnalysisException, match=remedy) as raised:
        spark.read.format("streamgroups").options(**options).load().count()
    assert not any(secret in str(raised.value) for secret in (STORE_PASSWORD, "wrong horse"))
