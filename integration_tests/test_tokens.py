"""OAUTHBEARER with a token provider and with client credentials: all clients log in to a broker that verifies signed tokens,
renew their tokens, and report why they have none.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.command_line import groups_command
from integration_tests.secured_brokers import TokenListeners, token_broker
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.tiers import LONG
from integration_tests.token_issuer import CLIENT_ID, CLIENT_SECRET, TokenIssuer, token_issuer
from integration_tests.token_providers import DIRECTORY, SECRET_OF_PROVIDER
from streamgroups.errors import InvalidOption, LoginRejected, TokenUnavailable
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_cli.exits import ExitCode
from streamgroups_kafka import native
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.read.range_reader import read_ranges
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed
from streamgroups_testkit.waits import wait_until

N = 20
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with token_issuer() as issuer:
        issuer.save(DIRECTORY)
        yield issuer
    shutil.rmtree(DIRECTORY)


@pytest.fixture(scope="module")
def broker(issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenListeners]:
    with token_broker(tmp_path_factory.mktemp("tokens"), issuer) as listeners:
        admin = AdminClient({"bootstrap.servers": listeners.plain})
        for made in admin.create_topics([NewTopic(it, 2, 1) for it in ("flights", "board")]).values():
            made.result(30)
        produce(listeners.plain, "flights", N, partitions=2)
        yield listeners


def provider(name: str) -> dict[str, str]:
    return {**OAUTH, "sasl.oauthbearer.token.provider": f"integration_tests.token_providers:{name}"}


def credentials(issuer: TokenIssuer, **other: str) -> dict[str, str]:
    given = {"token.endpoint.url": issuer.token_url, "client.id": CLIENT_ID, "client.secret": CLIENT_SECRET}
    return {**OAUTH, **{f"sasl.oauthbearer.{name}": value for name, value in {**given, **other}.items()}}


def login(issuer: TokenIssuer, kind: str) -> dict[str, str]:
    return provider("good") if kind == "provider" else credentials(issuer)


def config(broker: TokenListeners, settings: Mapping[str, str]) -> ClientConfig:
    return ClientConfig.from_options({"bootstrap.servers": broker.tokens, **settings})


def prefixed(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in settings.items()}


BOTH = pytest.mark.parametrize("kind", ["provider", "credentials"])


@BOTH
def test_a_batch_query(broker: TokenListeners, issuer: TokenIssuer, spark: SparkSession, kind: str) -> None:
    assert native.status().available, native.status().reason
    options = {"kafka.bootstrap.servers": broker.tokens, "subscribe": "flights", **prefixed(login(issuer, kind))}
    assert spark.read.format("streamgroups").options(**options).load().count() == N


def over_tls(broker: TokenListeners, settings: Mapping[str, str]) -> dict[str, str]:
    tls = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(broker.certificate)}
    return {**settings, **tls, "ssl.truststore.type": "PEM"}


@LONG
@pytest.mark.parametrize(("kind", "tls"), list(product(("provider", "credentials"), (True, False))))
def test_a_member_and_a_transaction(
    broker: TokenListeners, issuer: TokenIssuer, spark: SparkSession, kind: str, tls: bool, tmp_path: Path
) -> None:
    """librdkafka of the member, the native reader and kafka-python of the transaction."""
    assert native.status().available, native.status().reason
    group, settings, server = f"board-{uuid.uuid4().hex[:8]}", login(issuer, kind), broker.tokens
    if tls:
        settings, server = over_tls(broker, settings), broker.tokens_over_tls
    source = shared_options(server, group, "flights") | prefixed(settings)
    flights = spark.readStream.format("streamgroups").options(**source).load().select("key", "value")
    before = len(read_committed(broker.plain, "board"))
    sink = sg.KafkaSink(bootstrap_servers=server, topic="board", settings=settings)
    query = sg.exactly_once(flights, sink=sink, checkpoint=str(tmp_path))
    run(query)
    assert len(read_committed(broker.plain, "board")) == before + N
    assert committed_offsets(broker.plain, group, "flights") == {0: N // 2, 1: N // 2}
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert written
    assert not any(secret in written for secret in (b"eyJ", CLIENT_SECRET.encode()))


@pytest.mark.parametrize(("kind", "tls"), [("provider", False), pytest.param("credentials", True, marks=LONG)])
def test_a_command(broker: TokenListeners, issuer: TokenIssuer, kind: str, tls: bool, tmp_path: Path) -> None:
    group, settings, server = f"board-{uuid.uuid4().hex[:8]}", login(issuer, kind), broker.tokens
    if tls:
        settings, server = over_tls(broker, settings), broker.tokens_over_tls
    reset = groups_command(
        tmp_path, server, settings, "reset", group, "--topic", "flights", "--to-offset", "5", "--execute"
    )
    assert reset.returncode == ExitCode.DONE, reset.stderr
    assert committed_offsets(broker.plain, group, "flights") == {0: 5, 1: 5}
    described = groups_command(tmp_path, server, settings, "describe", group, "-o", "json")
    assert described.returncode == ExitCode.DONE, described.stderr
    assert json.loads(described.stdout)["groups"]


@pytest.mark.parametrize("reader", ["native", pytest.param("plain", marks=LONG)])
def test_a_reader_renews_its_token(broker: TokenListeners, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    monkeypatch.setenv(native.READER_VARIABLE, reader)
    settings = ReadSettings(config(broker, provider("short")), "board")
    ranges = [OffsetRange(TopicPartition("flights", partition), 0, N // 2) for partition in (0, 1)]
    schema = pa.schema(list(COLUMNS.items()))

    def calls() -> int:
        return len((DIRECTORY / "calls").read_text().split())

    def n_read() -> int:
        return sum(batch.num_rows for batch in read_ranges(ranges, schema, settings))

    assert n_read() == N
    first = calls()
    wait_until(lambda: n_read() == N and calls() > first + 1, "two renewals")


def test_clients_of_one_process_share_a_token(broker: TokenListeners, issuer: TokenIssuer) -> None:
    before = issuer.issued
    given = config(broker, credentials(issuer, scope=uuid.uuid4().hex))
    for _ in range(3):
        with closing(AdminSession(given, timeout_s=5)):
            pass
    assert issuer.issued == before + 1


@pytest.mark.parametrize("client", [KafkaCluster, AdminSession])
@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "failing",
            TokenUnavailable,
            r"token_providers:failing' raised RuntimeError: no credentials.*\(token_providers\.py, line \d+\)\. Correct",
        ),
        (
            "expired",
            TokenUnavailable,
            r"token_providers:expired' returned a token that expired 5 s ago\. Request a new",
        ),
        ("missing", InvalidOption, r"token\.provider': the module .* has no function 'missing'"),
    ],
)
def test_a_provider_without_a_token(
    broker: TokenListeners, issuer: TokenIssuer, client: type, name: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        client(config(broker, provider(name)))
    assert SECRET_OF_PROVIDER not in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None


@pytest.mark.parametrize("client", [KafkaCluster, AdminSession])
def test_an_endpoint_without_a_token(broker: TokenListeners, issuer: TokenIssuer, client: type) -> None:
    wrong = {"client.secret": "wrong horse"}
    with pytest.raises(
        LoginRejected, match=r"401 invalid_client.*Check 'kafka\.sasl\.oauthbearer\.client\.id'"
    ) as raised:
        client(config(broker, credentials(issuer, **wrong)))
    assert "horse" not in str(raised.value)
    nowhere = {"token.endpoint.url": "http://127.0.0.1:1/token"}
    with pytest.raises(TokenUnavailable, match=r"Connection refused.*Check 'kafka\.sasl\.oauthbearer\.token\.endpoint"):
        client(config(broker, credentials(issuer, **nowhere)))


def test_a_token_that_the_broker_rejects(broker: TokenListeners, issuer: TokenIssuer, tmp_path: Path) -> None:
    result = groups_command(tmp_path, broker.tokens, provider("foreign"), "list")
    assert (result.returncode, result.stdout) == (ExitCode.ERROR, "")
    assert "the broker rejects the token" in result.stderr
    assert "Check 'sasl.oauthbearer.token.provider'" in result.stderr
    assert "eyJ" not in result.stderr


def test_a_query_without_a_token(broker: TokenListeners, issuer: TokenIssuer, spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": broker.tokens, "subscribe": "flights", **prefixed(provider("failing"))}
    with pytest.raises(AnalysisException, match="failing' raised RuntimeError") as raised:
        spark.read.format("streamgroups").options(**options).load().count()
    assert SECRET_OF_PROVIDER not in str(raised.value)
