"""The ``kafka.*`` options of Spark's own Kafka source, as configuration of the clients we run.

Called by ``streamgroups_spark`` and the CLI, once, when options are read: everything is refused there, without a network, or
never. Sources: Kafka's consumer configuration (4.1: names, types, defaults), librdkafka's CONFIGURATION.md (2.16), and the
list of ``kafka.*`` options that Spark's source refuses (Structured Streaming + Kafka Integration Guide).

Options are written for the Java client; we run librdkafka, whose own names are taken too. Where one name means two things
the Java meaning wins: ``metadata.max.age.ms`` is how often metadata is refreshed, not how long librdkafka caches it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException

from streamgroups.errors import InvalidOption
from streamgroups_kafka.jaas import (
    SECRET,
    STORES,
    login_properties,
    oauth_properties,
    parse_jaas,
    redacted,
    secrets_of,
    store_properties,
    words,
)

#: librdkafka's properties that any client may have.
_COMMON = words(
    """
    bootstrap.servers client.id client.rack client.dns.lookup security.protocol debug log_level log.connection.close
    log.thread.name enable.metrics.push message.max.bytes receive.message.max.bytes max.in.flight.requests.per.connection
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.propagation.max.ms socket.timeout.ms socket.keepalive.enable
    socket.send.buffer.bytes socket.receive.buffer.bytes socket.nagle.disable socket.max.fails broker.address.ttl
    broker.address.family socket.connection.setup.timeout.ms connections.max.idle.ms reconnect.backoff.ms
    reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
    ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.providers ssl.crl.location ssl.ca.location ssl.ca.pem
    ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.location ssl.certificate.pem ssl.keystore.location
    ssl.keystore.password https.ca.location https.ca.pem enable.ssl.certificate.verification
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
#: ... that only a client which fetches may have,
_FETCHING = words(
    """
    fetch.min.bytes fetch.max.bytes fetch.wait.max.ms fetch.message.max.bytes fetch.queue.backoff.ms
    fetch.error.backoff.ms queued.min.messages queued.max.messages.kbytes check.crcs isolation.level
    """
)
#: ... that only a member of the group may have.
_CLASSIC_ONLY = frozenset({"session.timeout.ms", "heartbeat.interval.ms"})
_MEMBERSHIP = _CLASSIC_ONLY | words(
    "group.protocol group.instance.id group.remote.assignor max.poll.interval.ms coordinator.query.interval.ms"
)

#: Java's names, and librdkafka's second names, by the name we keep.
_RENAMED = {
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
#: Java's values that librdkafka writes differently.
_REWRITTEN = {
    ("receive.buffer.bytes", "-1"): "0",
    ("send.buffer.bytes", "-1"): "0",
    ("connections.max.idle.ms", "-1"): "0",
    ("ssl.endpoint.identification.algorithm", ""): "none",
    ("client.dns.lookup", "default"): "use_all_dns_ips",
}
#: Java's properties that change neither results nor security when nobody reads them.
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

_BYTES = "Keys and values arrive as bytes: convert them with DataFrame functions."
_WE_COMMIT = "Leave it out: offsets are committed when a micro-batch is done."
_OPENSSL = "Leave it out: TLS is OpenSSL's here; see 'kafka.ssl.providers'."
_OAUTH = "Leave it out, or set 'kafka.sasl.oauthbearer.token.endpoint.url' with a client id and secret."
_JAVA_CLASS = "Leave it out: no Java class can run here. Use PLAIN, SCRAM, OAUTHBEARER or mTLS."
#: Refused by name: why, and what to do.
_REFUSED = {
    "auto.offset.reset": ("would hide lost data", "Use 'startingPosition', and 'failOnDataLoss' for lost data."),
    **dict.fromkeys(("key.deserializer", "value.deserializer"), ("has no meaning for bytes", _BYTES)),
    **dict.fromkeys(("key.serializer", "value.serializer"), ("has no meaning for bytes", _BYTES)),
    **dict.fromkeys(
        ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"),
        ("would commit what is not processed yet", _WE_COMMIT),
    ),
    "enable.partition.eof": ("is how readers find the end of a range", "Leave it out: it is set where it is needed."),
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
#: Refused too, except with these values, which say what happens anyway.
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

_KNOWN = {*_COMMON, *_FETCHING, *_MEMBERSHIP, *_RENAMED, *_IGNORED, *_FIXED, *STORES, "group.id"} | SECRET
_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(\[[0-9A-Fa-f:%.]+\]|[0-9A-Za-z._%-]+):(\d{1,5})")
# Warnings and errors only; a closed idle connection is neither.
_QUIET = {"log_level": "4", "log.connection.close": "false"}
# A member never fetches: what it asks for is as little as librdkafka allows.
_NO_FETCHING = {"queued.min.messages": "1", "queued.max.messages.kbytes": "1", "fetch.message.max.bytes": "1024"}
_NEVER_COMMIT = {"enable.auto.commit": "false", "enable.auto.offset.store": "false"}


@dataclass(frozen=True, slots=True, repr=False)
class ClientConfig:
    """How to reach one cluster, checked. Make it with :meth:`from_options`.

    Prints without secrets. Pickles with them: it travels to Spark's tasks, in memory.

    Args:
        properties: librdkafka's names and values, sorted by name; unsafe to print.
        ignored: names that were given, are known, and have no effect here: for one log line.
        group_id: ``kafka.group.id``, if it was given.

    >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "request.timeout.ms": "9000"})
    >>> config
    ClientConfig(bootstrap.servers='broker:9092', socket.timeout.ms='9000')
    >>> config.for_admin()["socket.timeout.ms"]
    '9000'
    """

    properties: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...] = ()
    group_id: str | None = None

    @classmethod
    def from_options(cls, kafka_options: Mapping[str, str]) -> ClientConfig:
        """Translate and check; no network is used.

        Args:
            kafka_options: the ``kafka.*`` options without that prefix, by Java's or librdkafka's names.

        Returns:
            The configuration.

        Raises:
            InvalidOption: names the option and what to do. It never contains a secret.

        >>> ClientConfig.from_options({"bootstrap.servers": "broker:9092", "sesion.timeout.ms": "6000"})
        Traceback (most recent call last):
        ...
        streamgroups.errors.InvalidOption: Option 'kafka.sesion.timeout.ms' is unknown. Did you mean 'kafka.session.timeout.ms'?
        """
        given = {name.strip().lower(): value for name, value in kafka_options.items()}
        try:
            return _Translation().of(given)
        except InvalidOption as e:
            refusal = e
        # A misspelt name's value may be a secret too.
        doubtful = [value for name, value in given.items() if name not in _KNOWN]
        secrets = secrets_of(given.items(), doubtful)
        # Raised here, not above: the first error must not come along as the context of this one.
        raise InvalidOption(redacted(refusal.what, secrets), remedy=redacted(refusal.remedy, secrets))

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of one property by librdkafka's name. The caller must not print a secret one.

        >>> ClientConfig((("client.rack", "a"),)).get("client.rack")
        'a'
        """
        return dict(self.properties).get(name, default)

    @property
    def group_protocol(self) -> str:
        """``classic`` or ``consumer`` (KIP-848)."""
        return (self.get("group.protocol") or "classic").lower()

    @property
    def isolation_level(self) -> str:
        """What readers see: ``read_uncommitted`` (the Java client's default, and so Spark's) or ``read_committed``."""
        return (self.get("isolation.level") or "read_uncommitted").lower()

    def for_member(self, group_id: str, *, client_id: str | None = None, protocol: str | None = None) -> dict[str, str]:
        """For a consumer that is a member of a group and never fetches.

        Args:
            group_id: the group.
            client_id: what group listings show; default ``kafka.client.id``.
            protocol: ``classic`` or ``consumer``; default ``kafka.group.protocol``, else ``classic``.

        Returns:
            A configuration for ``confluent_kafka.Consumer``, without callbacks.

        Raises:
            InvalidOption: if an option of the other protocol was given.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        >>> config.for_member("orders", protocol="consumer")["group.protocol"]
        'consumer'
        """
        protocol = protocol or self.group_protocol
        _check_protocol(protocol, self.properties)
        classic = {"partition.assignment.strategy": "cooperative-sticky"} if protocol == "classic" else {}
        # A member hears of a rebalance with its next heartbeat: the default of three seconds makes a hand-over slow.
        heartbeat = {"heartbeat.interval.ms": "1000"} if protocol == "classic" else {}
        return {
            **_QUIET,
            **heartbeat,
            # New partitions must be seen soon: librdkafka's own default is five minutes.
            "topic.metadata.refresh.interval.ms": "5000",
            **self._only(_COMMON | _MEMBERSHIP, client_id),
            **_NO_FETCHING,
            **_NEVER_COMMIT,
            **classic,
            "group.id": group_id,
            "group.protocol": protocol,
            "allow.auto.create.topics": "false",
            "auto.offset.reset": "error",
            # librdkafka asks for stable offsets only then (KIP-447): none of a transaction that may still be aborted.
            "isolation.level": "read_committed",
        }

    def for_reader(self, group_id: str, *, client_id: str | None = None) -> dict[str, str]:
        """For a consumer that is assigned ranges and reads them, in a Spark task.

        Args:
            group_id: librdkafka wants one; nothing is joined or committed.
            client_id: what the broker's logs and quotas know it by; default ``kafka.client.id``.

        Returns:
            A configuration for ``confluent_kafka.Consumer``.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        >>> config.for_reader("orders")["isolation.level"]
        'read_uncommitted'
        """
        return {
            **_QUIET,
            # The Java client checks by default, librdkafka does not.
            "check.crcs": "true",
            **self._only(_COMMON | _FETCHING, client_id),
            **_NEVER_COMMIT,
            "group.id": group_id,
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": "false",
            "isolation.level": self.isolation_level,
        }

    def for_admin(self, *, client_id: str | None = None) -> dict[str, str]:
        """For an admin client or a producer: connection, sockets and security only.

        Args:
            client_id: what the broker's logs and quotas know it by; default ``kafka.client.id``.

        Returns:
            A configuration for ``confluent_kafka.admin.AdminClient``.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "fetch.min.bytes": "9"})
        >>> sorted(config.for_admin())
        ['bootstrap.servers', 'log.connection.close', 'log_level']
        """
        return {**_QUIET, **self._only(_COMMON, client_id)}

    def redact(self, text: str) -> str:
        """Take this configuration's secrets out of a text: a client's error, say.

        Args:
            text: any text.

        Returns:
            The text with ``***`` for each secret, for what follows ``password=`` or ``secret=``, and for a login in a URL.

        >>> config = ClientConfig((("sasl.password", "hunter2"),))
        >>> config.redact("login with hunter2 failed at https://ann:pw@idp/token"), config
        ('login with *** failed at https://***@idp/token', ClientConfig(sasl.password='***'))
        """
        return redacted(text, secrets_of(self.properties))

    def __repr__(self) -> str:
        shown = [f"{n}={'***' if n in SECRET else self.redact(v)!r}" for n, v in self.properties]
        shown += [f"group_id={self.group_id!r}"] if self.group_id is not None else []
        shown += [f"ignored={self.ignored!r}"] if self.ignored else []
        text = f"ClientConfig({', '.join(shown)})"
        for secret in secrets_of(self.properties):
            text = text.replace(secret, "***")
        return text

    def _only(self, allowed: frozenset[str], client_id: str | None) -> dict[str, str]:
        chosen = {name: value for name, value in self.properties if name in allowed}
        return chosen if client_id is None else {**chosen, "client.id": client_id}


class _Translation:
    """One run of :meth:`ClientConfig.from_options`: what was translated, and from which option."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self.ignored: list[str] = []

    def of(self, given: Mapping[str, str]) -> ClientConfig:
        for name, value in given.items():
            if not _c_string(value):
                raise InvalidOption(f"Option 'kafka.{name}' holds a NUL or half a character.", remedy="Remove it.")
            if name not in STORES and name not in ("sasl.jaas.config", "group.id"):
                self._take(name, value if name in SECRET else value.strip())
        for name, origin, value in store_properties(given):
            self._put(name, value, origin)
        if "sasl.jaas.config" in given:
            login = parse_jaas(given["sasl.jaas.config"])
            for name, value in login_properties(login, self.properties.get("sasl.mechanism")).items():
                self._put(name, value, "sasl.jaas.config")
        self.properties.update(oauth_properties(self.properties))
        self.properties["bootstrap.servers"] = _bootstrap(self.properties.get("bootstrap.servers", ""))
        _check_protocol(self.properties.get("group.protocol", "classic").lower(), self.properties.items())
        self.ignored += [name for name in ("ssl.truststore.password",) if name in given]
        config = ClientConfig(
            tuple(sorted(self.properties.items())), tuple(sorted(self.ignored)), given.get("group.id") or None
        )
        self._try(config)
        return config

    def _take(self, name: str, value: str) -> None:
        if name in _REFUSED:
            why, remedy = _REFUSED[name]
            raise InvalidOption(f"Option 'kafka.{name}' is refused: it {why}.", remedy=remedy)
        if name in _FIXED:
            allowed, remedy = _FIXED[name]
            if value.replace(" ", "") not in allowed:
                raise InvalidOption(
                    f"Option 'kafka.{name}' is refused with this value; it can only be {' or '.join(allowed)}.",
                    remedy=remedy,
                )
        elif name in _IGNORED or name.startswith(_IGNORED_PREFIXES) or _is_java_kinit(name, value):
            self.ignored.append(name)
        elif _RENAMED.get(name, name) in _COMMON | _FETCHING | _MEMBERSHIP:
            self._put(_RENAMED.get(name, name), _REWRITTEN.get((name, value), value), name)
        else:
            raise _unknown(name)

    def _put(self, name: str, value: str, origin: str) -> None:
        if self.properties.get(name, value) != value:
            raise InvalidOption(
                f"Options 'kafka.{self.origin[name]}' and 'kafka.{origin}' mean the same thing and differ.",
                remedy="Give one of them.",
            )
        self.properties[name], self.origin[name] = value, origin

    def _try(self, config: ClientConfig) -> None:
        """Let librdkafka check names, values, ranges, combinations and certificates: by making clients that stay idle."""
        silent = logging.Logger("streamgroups.trial", level=logging.CRITICAL + 1)
        # Certificates are loaded once: that is most of the cost.
        reader = {**config.for_reader("trial"), "security.protocol": "plaintext"}
        for trial in (config.for_member("trial"), reader):
            try:
                Consumer(_without_network(trial), logger=silent).close()
            except KafkaException as e:
                said = e.args[0].str().removeprefix("Failed to create consumer: ").strip()
                break
        else:
            return
        if said.startswith("No provider for SASL mechanism"):
            raise InvalidOption(
                "Option 'kafka.sasl.mechanism' names, or leaves out and so means, one that this librdkafka lacks.",
                remedy="Set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; GSSAPI (Kerberos, the default) needs "
                "confluent-kafka built from source with libsasl2.",
            )
        for name, origin in self.origin.items():
            said = re.sub(rf"([\"`]?)(?<![\w.]){re.escape(name)}(?![\w.])\1", f"'kafka.{origin}'", said)
        raise InvalidOption(f"librdkafka refuses the 'kafka.' options: {said.rstrip('.')}.", remedy="Correct it.")


def _without_network(trial: Mapping[str, str]) -> dict[str, str]:
    """Without what makes a client look for a broker, a token endpoint, a KDC or a name server as soon as it is made."""
    quiet = {name: value for name, value in trial.items() if name != "bootstrap.servers"}
    # Any name will do; confluent_kafka cannot decode a log line whose long non-ASCII client.id librdkafka cut in two.
    quiet["client.id"] = "trial"
    if trial.get("sasl.oauthbearer.method") == "oidc":
        quiet["sasl.oauthbearer.method"] = "default"
    if trial.get("sasl.mechanism") == "GSSAPI":
        quiet["sasl.kerberos.min.time.before.relogin"] = "0"
    if trial.get("client.dns.lookup") == "resolve_canonical_bootstrap_servers_only":
        quiet["client.dns.lookup"] = "use_all_dns_ips"
    return quiet


def _c_string(value: str) -> bool:
    """Whether librdkafka gets the whole value: a NUL would end it, unnoticed, and a lone surrogate is no UTF-8."""
    return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_java_kinit(name: str, value: str) -> bool:
    """Java wants the path of kinit there, librdkafka a shell command."""
    return name == "sasl.kerberos.kinit.cmd" and " " not in value


def _unknown(name: str) -> InvalidOption:
    close = difflib.get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.75)
    remedy = f"Did you mean 'kafka.{close[0]}'?" if close else "See Kafka's consumer configuration for the names."
    return InvalidOption(f"Option 'kafka.{name}' is unknown.", remedy=remedy)


def _check_protocol(protocol: str, properties: Iterable[tuple[str, str]]) -> None:
    if protocol not in ("classic", "consumer"):
        raise InvalidOption("Option 'kafka.group.protocol' must be 'classic' or 'consumer'.")
    for name, _ in properties:
        if protocol == "consumer" and name in _CLASSIC_ONLY:
            raise InvalidOption(
                f"Option 'kafka.{name}' does not go with 'kafka.group.protocol=consumer': the broker decides it.",
                remedy=f"Set the group's 'consumer.{name}' on the broker (kafka-configs.sh --entity-type groups).",
            )


def _bootstrap(servers: str) -> str:
    """``host:port`` for each server. A protocol in front is dropped, as the Java client does."""
    entries = [entry.strip() for entry in servers.split(",") if entry.strip()]
    if not entries:
        raise InvalidOption("Option 'kafka.bootstrap.servers' is missing.", remedy="Give host:port[,host:port].")
    addresses = []
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or not 1 <= int(match[2]) <= 65535:
            shown = "an entry" if "@" in entry else f"'{entry}'"
            raise InvalidOption(
                f"Option 'kafka.bootstrap.servers' is malformed: {shown} is not host:port with a port of 1 to 65535.",
                remedy="Give host:port[,host:port].",
            )
        addresses.append(f"{match[1]}:{match[2]}")
    return ",".join(addresses)
