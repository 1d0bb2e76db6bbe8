"""The names and values of client settings of Java and librdkafka, and the translation between them.

Tables, and the function that reads them, called by :mod:`streamgroups_kafka.client.config`. Sources: Kafka's consumer
configuration (4.1: names, types, defaults), librdkafka's CONFIGURATION.md (2.16), and the ``kafka.*`` options that
Spark's source rejects (Structured Streaming + Kafka Integration Guide).

Options have the format of the Java client. The clients are librdkafka clients, whose own names are accepted too. If a
name has two meanings, that of Java applies: ``metadata.max.age.ms`` is the refresh interval of metadata, not the
lifetime of librdkafka's cache.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamgroups.connections.secret_names import KAFKA_SECRETS
from streamgroups.errors import InvalidOption
from streamgroups.printable import has_half_pair
from streamgroups_kafka.client.jaas import (
    PROVIDER,
    STORES,
    login_properties,
    oauth_properties,
    parse_jaas,
    store_properties,
    words,
)
from streamgroups_kafka.client.setting_values import checked_value

#: librdkafka's properties for all clients.
COMMON = words(
    """
    bootstrap.servers client.id client.rack client.dns.lookup security.protocol debug log_level log.connection.close
    log.thread.name enable.metrics.push message.max.bytes receive.message.max.bytes max.in.flight.requests.per.connection
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.propagation.max.ms socket.timeout.ms socket.keepalive.enable
    socket.send.buffer.bytes socket.receive.buffer.bytes socket.nagle.disable socket.max.fails broker.address.ttl
    broker.address.family socket.connection.setup.timeout.ms connections.max.idle.ms reconnect.backoff.ms
    reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
    ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.providers ssl.crl.location ssl.ca.location ssl.ca.pem
    ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.location ssl.certificate.pem https.ca.location https.ca.pem enable.ssl.certificate.verification
    ssl.endpoint.identification.algorithm sasl.mechanism sasl.username sasl.password sasl.kerberos.service.name
    sasl.kerberos.principal sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.oauthbearer.config sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.grant.type
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.metadata.authentication.type enable.sasl.oauthbearer.unsecure.jwt
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.jwt.template.file
    """
)
#: librdkafka's properties for clients that fetch.
FETCHING = words(
    """
    fetch.min.bytes fetch.max.bytes fetch.wait.max.ms fetch.message.max.bytes fetch.queue.backoff.ms
    fetch.error.backoff.ms queued.min.messages queued.max.messages.kbytes check.crcs isolation.level
    """
)
#: librdkafka's properties for members of the group.
CLASSIC_ONLY = frozenset({"session.timeout.ms", "heartbeat.interval.ms"})
MEMBERSHIP = CLASSIC_ONLY | words(
    "group.protocol group.instance.id group.remote.assignor max.poll.interval.ms coordinator.query.interval.ms"
)

#: Java's names, and librdkafka's aliases, by the names of this library.
RENAMED = {
    "request.timeout.ms": "socket.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
}
#: Java's values that have another form in librdkafka.
_REWRITTEN = {
    ("receive.buffer.bytes", "-1"): "0",
    ("send.buffer.bytes", "-1"): "0",
    ("connections.max.idle.ms", "-1"): "0",
    ("ssl.endpoint.identification.algorithm", ""): "none",
    ("client.dns.lookup", "default"): "use_all_dns_ips",
}
#: Java's properties that can be ignored without an effect on results or security.
_IGNORED = words(
    """
    max.poll.records exclude.internal.topics default.api.timeout.ms auto.commit.interval.ms metric.reporters
    auto.include.jmx.reporter socket.connection.setup.timeout.max.ms bootstrap.resolve.timeout.ms
    ssl.secure.random.implementation ssl.protocol sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer
    """
)
_IGNORED_PREFIXES = ("metrics.", "internal.", "sasl.login.re", "sasl.oauthbearer.jwks.")

_BYTES = "Keys and values are read as bytes: convert them with DataFrame functions."
_WE_COMMIT = "Leave it out: the library commits offsets when a micro-batch is finished."
_OPENSSL = "Leave it out: the client uses OpenSSL for TLS; see 'kafka.ssl.providers'."
_OAUTH = "Leave it out, or set 'kafka.sasl.oauthbearer.token.endpoint.url' with a client id and secret."
_JAVA_CLASS = (
    "Leave it out: the client cannot run Java classes. Use PLAIN, SCRAM, OAUTHBEARER or mTLS. For OAUTHBEARER "
    f"'kafka.{PROVIDER}' names a Python function."
)
#: Rejected options, with reason and remedy.
_REJECTED = {
    "auto.offset.reset": ("would hide lost data", "Use 'startingOffsets', and 'onDataLoss' for lost data."),
    **dict.fromkeys(("key.deserializer", "value.deserializer"), ("does not apply to bytes", _BYTES)),
    **dict.fromkeys(("key.serializer", "value.serializer"), ("does not apply to bytes", _BYTES)),
    **dict.fromkeys(
        ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"),
        ("would commit offsets of records that are not processed yet", _WE_COMMIT),
    ),
    "enable.partition.eof": (
        "is reserved for the reader, which detects the end of a range with it",
        "Leave it out: the reader sets it.",
    ),
    **dict.fromkeys(
        ("interceptor.classes", "interceptors", "plugin.library.paths"),
        ("loads code into the client", "Leave it out; watch the query with a StreamingQueryListener."),
    ),
    "group.protocol.type": ("is always 'consumer'", "Leave it out."),
    "share.acknowledgement.mode": ("belongs to share groups", "Leave it out."),
    **dict.fromkeys(
        ("ssl.provider", "ssl.engine.factory.class", "security.providers"), ("names Java classes", _OPENSSL)
    ),
    **dict.fromkeys(("sasl.client.callback.handler.class", "sasl.login.class"), ("names a Java class", _JAVA_CLASS)),
}
_OIDC_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
#: Options that are rejected unless they have these values, which describe the fixed behaviour.
_FIXED = {
    "partition.assignment.strategy": (
        ("cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
        "Leave it out: the classic protocol uses cooperative-sticky; for the consumer protocol see 'group.remote.assignor'.",
    ),
    "allow.auto.create.topics": (("false",), "Leave it out, and create the topic first."),
    "ssl.trustmanager.algorithm": (("PKIX",), _OPENSSL),
    "ssl.keymanager.algorithm": (("SunX509", "PKIX"), _OPENSSL),
    "ssl.enabled.protocols": (
        ("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2", "TLSv1.2"),
        "Leave it out, or restrict the broker.",
    ),
    "sasl.login.callback.handler.class": (_OIDC_HANDLERS, _JAVA_CLASS),
    "sasl.oauthbearer.header.urlencode": (("false",), _OAUTH),
    "sasl.oauthbearer.jwt.retriever.class": (
        ("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",),
        "Leave it out; for a JWT assertion set 'kafka.sasl.oauthbearer.grant.type'.",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        tuple(f"org.apache.kafka.common.security.oauthbearer.{c}JwtValidator" for c in ("Default", "Client")),
        _OAUTH,
    ),
}

KNOWN = {*COMMON, *FETCHING, *MEMBERSHIP, *RENAMED, *_IGNORED, *_FIXED, *STORES, PROVIDER, "group.id"} | KAFKA_SECRETS
_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(\[[0-9A-Fa-f:%.]+\]|[0-9A-Za-z._%-]+):([0-9]{1,5})")


def connection_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a consumer that a producer or an admin client of the same cluster needs too.

    Args:
        given: settings by Java's or librdkafka's names, in lower case.

    >>> connection_settings({"bootstrap.servers": "broker:9092", "group.id": "board", "fetch.max.wait.ms": "100"})
    {'bootstrap.servers': 'broker:9092'}
    """
    reading = FETCHING | MEMBERSHIP | {"group.id"}
    return {name: value for name, value in given.items() if RENAMED.get(name, name) not in reading}


def check_setting(name: str) -> None:
    """Checks the name of a setting, without its value.

    Args:
        name: the name, in lower case.

    Raises:
        InvalidOption: if it is unknown or rejected.

    >>> check_setting("sasl.pasword")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.sasl.pasword' is unknown. Did you mean 'kafka.sasl.password'?
    """
    if name in _REJECTED or not (name in KNOWN or name.startswith(_IGNORED_PREFIXES)):
        Translation().take(name, "")


def translate(given: Mapping[str, str]) -> Translation:
    """Translates settings one by one. librdkafka checks their combination.

    Args:
        given: the ``kafka.*`` options without that prefix, in lower case.

    Raises:
        InvalidOption: for the first option that is unknown, rejected or malformed. It may contain a secret.

    >>> translate({"bootstrap.servers": "broker:9092", "request.timeout.ms": "9000", "max.poll.records": "5"}).properties
    {'bootstrap.servers': 'broker:9092', 'socket.timeout.ms': '9000'}
    """
    if given.get("sasl.mechanism", "").strip().upper() == "AWS_MSK_IAM":
        raise InvalidOption(
            "Option 'kafka.sasl.mechanism' is AWS_MSK_IAM, which is not supported: it needs a Java class of AWS.",
            remedy=f"Set it to OAUTHBEARER, and 'kafka.{PROVIDER}' to a function that returns tokens of AWS. Or use "
            "SCRAM-SHA-512 or mTLS, if the MSK cluster enables one of them.",
        )
    found = Translation()
    for name, value in given.items():
        if not _c_string(value):
            raise InvalidOption(
                f"Option 'kafka.{name}' contains a NUL character or an unpaired surrogate.", remedy="Remove it."
            )
        if name not in STORES and name not in ("sasl.jaas.config", "group.id"):
            found.take(name, value if name in KAFKA_SECRETS else value.strip())
    for name, origin, value in store_properties(given):
        found.put(name, value, origin)
    if "sasl.jaas.config" in given:
        login = parse_jaas(given["sasl.jaas.config"])
        for name, value in login_properties(login, found.properties.get("sasl.mechanism")).items():
            found.put(name, value, "sasl.jaas.config")
    found.properties.update(oauth_properties(found.properties))
    found.properties["bootstrap.servers"] = _bootstrap(found.properties.get("bootstrap.servers", ""))
    for store in ("truststore", "keystore"):
        password = f"ssl.{store}.password"
        found.ignored += [password] if password in given and f"ssl.{store}.location" not in found.properties else []
    return found


@dataclass(slots=True)
class Translation:
    """The result of a translation.

    Args:
        properties: librdkafka's names and values.
        origin: the original option of each property, for errors.
        ignored: options that are known and have no effect.
    """

    properties: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def take(self, name: str, value: str) -> None:
        """Translates one option.

        Raises:
            InvalidOption: if the option is unknown or rejected, or its value has another form.
        """
        if name in _REJECTED:
            why, remedy = _REJECTED[name]
            raise InvalidOption(f"Option 'kafka.{name}' is not supported: it {why}.", remedy=remedy)
        if name in _FIXED:
            allowed, remedy = _FIXED[name]
            if value.replace(" ", "") not in allowed:
                raise InvalidOption(
                    f"Option 'kafka.{name}' has an unsupported value; it can only be {' or '.join(allowed)}.",
                    remedy=remedy,
                )
        elif name == "sasl.kerberos.kinit.cmd" and not _is_java_kinit(name, value):
            raise InvalidOption(
                f"Option 'kafka.{name}' is not supported: it runs a command in a shell.",
                remedy=(
                    "Leave it out. Get the ticket with kinit before the start, or with a separate keytab "
                    "service (k5start)."
                ),
            )
        elif name in _IGNORED or name.startswith(_IGNORED_PREFIXES) or _is_java_kinit(name, value):
            self.ignored.append(name)
        elif name == PROVIDER or RENAMED.get(name, name) in COMMON | FETCHING | MEMBERSHIP:
            self.put(RENAMED.get(name, name), _REWRITTEN.get((name, value), value), name)
        else:
            raise _unknown(name)

    def put(self, name: str, value: str, origin: str) -> None:
        """Sets one property, which results from the option ``origin``.

        Raises:
            InvalidOption: if the value has another form, or another option has set the property to another value.
        """
        value = checked_value(name, value, origin)
        if self.properties.get(name, value) != value:
            raise InvalidOption(
                f"Options 'kafka.{self.origin[name]}' and 'kafka.{origin}' set the same property to different values.",
                remedy="Set only one of them.",
            )
        self.properties[name], self.origin[name] = value, origin


def _c_string(value: str) -> bool:
    """Whether librdkafka receives the complete value: a NUL would truncate it silently, and a lone surrogate is not
    UTF-8.
    """
    return "\0" not in value and not has_half_pair(value)


def _is_java_kinit(name: str, value: str) -> bool:
    """In Java the value is the path of kinit, in librdkafka a shell command."""
    return name == "sasl.kerberos.kinit.cmd" and " " not in value


def _unknown(name: str) -> InvalidOption:
    close = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.75)
    remedy = f"Did you mean 'kafka.{close[0]}'?" if close else "See Kafka's consumer configuration for the names."
    return InvalidOption(f"Option 'kafka.{name}' is unknown.", remedy=remedy)


def _bootstrap(servers: str) -> str:
    """Returns ``host:port`` for each server. A protocol prefix is dropped, as in the Java client."""
    entries = [entry.strip() for entry in servers.split(",") if entry.strip()]
    if not entries:
        raise InvalidOption("Option 'kafka.bootstrap.servers' is missing.", remedy="Set it to host:port[,host:port].")
    addresses = []
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or not 1 <= int(match[2]) <= 65535:
            shown = "an entry" if "@" in entry else f"'{entry}'"
            raise InvalidOption(
                f"Option 'kafka.bootstrap.servers' is malformed: {shown} is not host:port with a port of 1 to 65535.",
                remedy="Set it to host:port[,host:port].",
            )
        addresses.append(f"{match[1]}:{match[2]}")
    return ",".join(addresses)
