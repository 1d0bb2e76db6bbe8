"""The ``kafka.*`` options of Spark's Kafka source, as configurations of the clients of this library.

``streamgroups_spark`` and the CLI call it once, when they read options. It makes all checks at that time, without a
network. :mod:`streamgroups_kafka.client.java_settings` translates each option. This module selects the properties of
each kind of client. Source: librdkafka's CONFIGURATION.md (2.16).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaException

from streamgroups.connections.redaction import redacted
from streamgroups.connections.secret_names import KAFKA_SECRETS
from streamgroups.errors import InvalidOption
from streamgroups.option_values import folded
from streamgroups_kafka.client.connected import Recipe, References, resolved_settings
from streamgroups_kafka.client.jaas import PROVIDER, secrets_of
from streamgroups_kafka.client.java_settings import CLASSIC_ONLY, COMMON, FETCHING, KNOWN, MEMBERSHIP, translate
from streamgroups_kafka.client.key_stores import BINARY_STORES, pem_properties
from streamgroups_kafka.client.token_providers import TokenSource, token_source

# No output on stderr: ``logs`` logs failed requests. A closed idle connection is not an error.
_NO_LOGS = {"log_level": "0", "log.connection.close": "false"}
# Only warnings and errors, which ``logs`` receives.
_WITH_LOG = {**_NO_LOGS, "log_level": "4"}
#: The first requests of a new client are short and sequential. Without this setting, each could wait for the response
#: to the previous one.
_PROMPT = {"socket.nagle.disable": "true"}
#: A client checks for a broker to connect to once per half of ``reconnect.backoff.ms``, and the first check fails. With
#: the default of librdkafka, every new client waits 50 ms.
_POLL_OFTEN = {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "1000"}
#: The maximum reconnect backoff, equal to that of the Java client. librdkafka's default is 10 s, kafka-python's 30 s.
RECONNECT_MAX_MS = int(_POLL_OFTEN["reconnect.backoff.max.ms"])
# A member never fetches, so these are the minimum values of librdkafka.
_NO_FETCHING = {"queued.min.messages": "1", "queued.max.messages.kbytes": "1", "fetch.message.max.bytes": "1024"}
#: A host that hangs keeps its connections, so a client searches for a new coordinator of its group itself. With librdkafka's
#: default of 10 minutes a member would lose its partitions first. The user can set another interval.
_FIND_COORDINATOR = {"coordinator.query.interval.ms": "5000", "api.version.request.timeout.ms": "5000"}
#: The minimum and maximum timeout of a request to a coordinator, in milliseconds. Between them it is a part of the session timeout.
_COORDINATOR_TIMEOUT_MS = (5_000, 15_000)
_COORDINATOR_PARTS = 3
#: A client that reads finds a new leader in the same way (defaults: 5 minutes and 60 s). The response to a fetch can be large, so the
#: timeout is the default of the Java client.
_FIND_LEADER = {"topic.metadata.refresh.interval.ms": "5000", "socket.timeout.ms": "30000"}
#: Words of errors that stay, although a password such as ``kafka`` is a part of them.
_NAMES = frozenset({*KNOWN, "kafka.", "librdkafka"})
_NEVER_COMMIT = {"enable.auto.commit": "false", "enable.auto.offset.store": "false"}


@dataclass(frozen=True, slots=True, repr=False)
class ClientConfig:
    """The checked configuration of a client. Create it with :meth:`from_options`.

    Its ``repr`` contains no secrets. Its pickle contains explicit ones, for tasks of Spark, in memory. Of a connection it
    contains the references, which the other process resolves.

    Args:
        properties: librdkafka's names and values, sorted by name, the names of Java for PKCS12 and JKS stores, and the
            name of a token provider. They contain secrets: do not print them.
        ignored: the given options that are known and have no effect, for one log line.
        group_id: the value of ``kafka.group.id``, if it was given.
        recipe: the options and the references of its connection, for its pickle; ``None`` without references.

    >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "request.timeout.ms": "9000"})
    >>> config
    ClientConfig(bootstrap.servers='broker:9092', socket.timeout.ms='9000')
    >>> config.for_admin()["socket.timeout.ms"]
    '9000'
    """

    properties: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...] = ()
    group_id: str | None = None
    recipe: Recipe | None = None

    @classmethod
    def from_options(
        cls, kafka_options: Mapping[str, str], references: References | None = None, *, is_checked: bool = False
    ) -> ClientConfig:
        """Translates and checks options, without a network.

        Args:
            kafka_options: the ``kafka.*`` options without that prefix, with their Java or librdkafka names in any case.
            references: the references of options that do not leave this process.
            is_checked: whether librdkafka has checked the options in another process.

        Returns:
            The configuration.

        Raises:
            InvalidOption: if an option is invalid or given twice. The error contains the option and a remedy, and never a secret.

        >>> ClientConfig.from_options({"bootstrap.servers": "broker:9092", "sesion.timeout.ms": "6000"})
        Traceback (most recent call last):
        ...
        streamgroups.errors.InvalidOption: Option 'kafka.sesion.timeout.ms' is unknown. Did you mean 'kafka.session.timeout.ms'?
        """
        given = folded(kafka_options.items())
        try:
            return cls._made(given, references, is_checked=is_checked)
        except InvalidOption as e:
            rejection = e
        # The value of an option with a misspelt name may be a secret too.
        doubtful = [value for name, value in given.items() if name not in KNOWN]
        secrets = secrets_of(given.items(), doubtful)
        # Raised outside the handler, so that the first error, with its secrets, is not the context of this one.
        names = _NAMES | given.keys()
        raise InvalidOption(redacted(rejection.what, secrets, names), remedy=redacted(rejection.remedy, secrets, names))

    @classmethod
    def _made(
        cls, given: Mapping[str, str], references: References | None, *, is_checked: bool = False
    ) -> ClientConfig:
        found = translate(given)
        properties = tuple(sorted(found.properties.items()))
        _check_protocol(found.properties.get("group.protocol", "classic").lower(), properties)
        recipe = None if references is None else Recipe.of(given, references)
        config = cls(properties, tuple(sorted(found.ignored)), given.get("group.id") or None, recipe)
        if not is_checked:
            _try(config, found.origin)
        return config

    def __reduce__(self) -> tuple[object, ...]:
        if self.recipe is None:
            return ClientConfig, (self.properties, self.ignored, self.group_id)
        return _resolved_again, (self.recipe,)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Returns the value of one property by librdkafka's name. The caller must not print secrets.

        >>> ClientConfig((("client.rack", "a"),)).get("client.rack")
        'a'
        """
        return dict(self.properties).get(name, default)

    @property
    def with_pem(self) -> tuple[tuple[str, str], ...]:
        """The properties, with the content of PKCS12 and JKS stores as PEM. They contain a private key.

        Raises:
            InvalidOption: if a store cannot be read on this machine.
        """
        read = pem_properties(dict(self.properties))
        # The password of the key has opened the store. The key in PEM has none.
        dropped = BINARY_STORES | ({"ssl.key.password"} if "ssl.key.pem" in read else set())
        return tuple(sorted({**{n: v for n, v in self.properties if n not in dropped}, **read}.items()))

    @property
    def group_protocol(self) -> str:
        """The group protocol: ``classic`` or ``consumer`` (KIP-848)."""
        return (self.get("group.protocol") or "classic").lower()

    @property
    def has_login(self) -> bool:
        """Whether a broker can reject the client before its first request.

        >>> ClientConfig((("security.protocol", "SASL_SSL"),)).has_login, ClientConfig(()).has_login
        (True, False)
        """
        return (self.get("security.protocol") or "plaintext").lower() != "plaintext"

    @property
    def tokens(self) -> TokenSource | None:
        """The source of tokens for OAUTHBEARER, which all clients of this process share; ``None`` for other mechanisms.

        ``None`` also if only librdkafka supports the method.
        """
        return token_source(dict(self.properties), self.redact)

    @property
    def isolation_level(self) -> str:
        """The isolation level of readers: ``read_uncommitted`` (the default of the Java client and of Spark) or
        ``read_committed``.
        """
        return (self.get("isolation.level") or "read_uncommitted").lower()

    @property
    def risks(self) -> tuple[str, ...]:
        """Settings that allow third parties to read or change data in transit, as sentences for the log.

        >>> ClientConfig((("security.protocol", "sasl_plaintext"), ("sasl.mechanism", "PLAIN"))).risks
        ('The password is sent in plain text: set kafka.security.protocol=SASL_SSL.',)
        """
        protocol, found = (self.get("security.protocol") or "plaintext").lower(), []
        mechanism = (self.get("sasl.mechanism") or "GSSAPI").upper()
        if protocol == "sasl_plaintext" and mechanism in ("PLAIN", "OAUTHBEARER"):
            what = "password" if mechanism == "PLAIN" else "token"
            found.append(f"The {what} is sent in plain text: set kafka.security.protocol=SASL_SSL.")
        is_checked = (self.get("enable.ssl.certificate.verification") or "true").lower() == "true"
        if protocol.endswith("ssl") and not is_checked:
            found.append(
                "The brokers' certificates are not verified (kafka.enable.ssl.certificate.verification=false)."
            )
        elif (
            protocol.endswith("ssl")
            and (self.get("ssl.endpoint.identification.algorithm") or "https").lower() == "none"
        ):
            found.append(
                "The host names of brokers are not verified (kafka.ssl.endpoint.identification.algorithm is empty)."
            )
        endpoint = (self.get("sasl.oauthbearer.token.endpoint.url") or "").lower()
        if endpoint.startswith("http:"):
            found.append("The client secret is sent to the token endpoint in plain text: use an https:// URL.")
        return tuple(found)

    def for_member(self, group_id: str, *, client_id: str | None = None) -> dict[str, Any]:
        """Returns the configuration of a consumer that is a member of a group and never fetches.

        Args:
            group_id: the group.
            client_id: the client id in listings of groups; default ``kafka.client.id``.

        Returns:
            A configuration for ``confluent_kafka.Consumer``. Its only callback is that of a token provider.

        Raises:
            TokenUnavailable: if there is no token for OAUTHBEARER.
            LoginRejected: if the token endpoint rejects the client.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        >>> config.for_member("orders")["group.protocol"]
        'classic'
        """
        protocol = self.group_protocol
        classic = {"partition.assignment.strategy": "cooperative-sticky"} if protocol == "classic" else {}
        # A member detects a rebalance with its next heartbeat, and a join needs two of them in a row. librdkafka's
        # default of 3 s would delay handovers. A heartbeat costs a broker 0.1 ms of a processor.
        heartbeat = {"heartbeat.interval.ms": "250"} if protocol == "classic" else {}
        return {
            **_WITH_LOG,
            **heartbeat,
            # New partitions must be detected soon: librdkafka's default is 5 minutes.
            "topic.metadata.refresh.interval.ms": "5000",
            **self._of_group(group_id, COMMON | MEMBERSHIP, client_id),
            **classic,
            "group.protocol": protocol,
        }

    def for_offsets(self, group_id: str) -> dict[str, Any]:
        """Returns the configuration of a consumer that reads and commits offsets of a group, and is no member.

        Args:
            group_id: the group.

        Returns:
            A configuration for ``confluent_kafka.Consumer``.

        Raises:
            TokenUnavailable: if there is no token for OAUTHBEARER.
            LoginRejected: if the token endpoint rejects the client.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        >>> config.for_offsets("orders.streamgroups")["isolation.level"]
        'read_committed'
        """
        return {**_NO_LOGS, **self._of_group(group_id, COMMON | _FIND_COORDINATOR.keys(), None)}

    def _of_group(self, group_id: str, allowed: frozenset[str], client_id: str | None) -> dict[str, Any]:
        return {
            **self._prompt(),
            **_FIND_COORDINATOR,
            **self._only(allowed, client_id),
            "socket.timeout.ms": self._coordinator_timeout_ms(),
            **_NO_FETCHING,
            **_NEVER_COMMIT,
            "group.id": group_id,
            "allow.auto.create.topics": "false",
            "auto.offset.reset": "error",
            # librdkafka requests stable offsets (KIP-447) only with this setting. Offsets of an open transaction may
            # still be aborted.
            "isolation.level": "read_committed",
        }

    def _coordinator_timeout_ms(self) -> str:
        """The timeout of requests to the coordinator and for it.

        A longer ``request.timeout.ms``, as for large fetches, has no effect here. While a search for the coordinator waits for a host
        that hangs, a member sends no heartbeat.
        """
        least, most = _COORDINATOR_TIMEOUT_MS
        session, request = self.get("session.timeout.ms", "45000") or "", self.get("socket.timeout.ms", str(most)) or ""
        if not (session.isdecimal() and request.isdecimal()):
            # librdkafka rejects the value with a better error.
            return request
        return str(min(int(request), most, max(least, int(session) // _COORDINATOR_PARTS)))

    def for_reader(self, group_id: str, *, client_id: str | None = None) -> dict[str, Any]:
        """Returns the configuration of a consumer that reads assigned ranges in a Spark task.

        Args:
            group_id: required by librdkafka. The reader neither joins the group nor commits.
            client_id: the client id in logs and quotas of the broker; default ``kafka.client.id``.

        Returns:
            A configuration for ``confluent_kafka.Consumer``.

        Raises:
            TokenUnavailable: if there is no token for OAUTHBEARER.
            LoginRejected: if the token endpoint rejects the client.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
        >>> config.for_reader("orders")["isolation.level"]
        'read_uncommitted'
        """
        return {
            **_NO_LOGS,
            **self._prompt(),
            **_FIND_LEADER,
            # The Java client checks CRCs by default, librdkafka does not.
            "check.crcs": "true",
            **self._only(COMMON | FETCHING, client_id),
            **_NEVER_COMMIT,
            "group.id": group_id,
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": "false",
            "isolation.level": self.isolation_level,
        }

    def for_admin(self, *, client_id: str | None = None) -> dict[str, Any]:
        """Returns the configuration of an admin client or a producer: connection, sockets and security only.

        Args:
            client_id: the client id in logs and quotas of the broker; default ``kafka.client.id``.

        Returns:
            A configuration for ``confluent_kafka.admin.AdminClient``.

        Raises:
            TokenUnavailable: if there is no token for OAUTHBEARER.
            LoginRejected: if the token endpoint rejects the client.

        >>> config = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "fetch.min.bytes": "9"})
        >>> sorted(config.for_admin())
        ['bootstrap.servers', 'log.connection.close', 'log_level', 'reconnect.backoff.max.ms', 'reconnect.backoff.ms', 'socket.nagle.disable']
        """
        return {**_NO_LOGS, **self._prompt(), **self._only(COMMON, client_id)}

    def redact(self, text: str) -> str:
        """Removes the secrets of this configuration from a text, such as a client error.

        Args:
            text: any text.

        Returns:
            The text with ``***`` for each secret, for values after names such as ``password=``, and for the
            credentials in a URL. The names of options stay.

        >>> config = ClientConfig((("sasl.password", "hunter2"),))
        >>> config.redact("login with hunter2 failed at https://ann:pw@idp/token"), config
        ('login with *** failed at https://***@idp/token', ClientConfig(sasl.password='***'))
        """
        return redacted(text, secrets_of(self.properties), _NAMES)

    def __repr__(self) -> str:
        shown = [f"{n}={'***' if n in KAFKA_SECRETS else self.redact(v)!r}" for n, v in self.properties]
        shown += [f"group_id={self.redact(self.group_id)!r}"] if self.group_id is not None else []
        shown += [f"ignored={self.ignored!r}"] if self.ignored else []
        return f"ClientConfig({', '.join(shown)})"

    def _prompt(self) -> dict[str, str]:
        # The two properties must be consistent. If the user sets one of them, the user is responsible for both.
        return _PROMPT if any(name in _POLL_OFTEN for name, _ in self.properties) else {**_PROMPT, **_POLL_OFTEN}

    def _only(self, allowed: frozenset[str], client_id: str | None) -> dict[str, Any]:
        chosen: dict[str, Any] = {name: value for name, value in self.with_pem if name in allowed}
        if client_id is not None:
            chosen["client.id"] = client_id
        if (tokens := self.tokens) is not None:
            # The reason of a failure is known only here. The client would wait for 10 s, and report none.
            tokens.current()
            if self.get(PROVIDER) is not None:
                chosen["oauth_cb"] = tokens.for_librdkafka
        return chosen


def _resolved_again(recipe: Recipe) -> ClientConfig:
    """Returns the configuration of a pickle, with the secrets of this process."""
    settings = resolved_settings(dict(recipe.options), recipe.references)
    return ClientConfig.from_options(settings, recipe.references, is_checked=True)


def _try(config: ClientConfig, origins: Mapping[str, str]) -> None:
    """Creates idle clients, so that librdkafka checks names, values, ranges, combinations and certificates."""
    silent = logging.Logger("streamgroups.trial", level=logging.CRITICAL + 1)
    # A token is requested when a client is created.
    config = replace(config, properties=tuple((n, v) for n, v in config.properties if not _requests_token(n)))
    # Only one client loads certificates: that is most of the cost.
    reader = {**config.for_reader("trial"), "security.protocol": "plaintext"}
    for trial in (config.for_member("trial"), reader):
        try:
            Consumer(_without_network(trial), logger=silent).close()
        except KafkaException as e:
            rejection = e.args[0].str().removeprefix("Failed to create consumer: ").strip()
            break
    else:
        return
    if rejection.startswith("No provider for SASL mechanism"):
        given = config.get("sasl.mechanism")
        # The value could be a password.
        which = "GSSAPI, which is the default" if given is None else given if given == "GSSAPI" else "another one"
        raise InvalidOption(
            f"The SASL mechanism of option 'kafka.sasl.mechanism' ({which}) is not supported by this librdkafka.",
            remedy="Set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; GSSAPI (Kerberos) needs "
            "confluent-kafka built from source with libsasl2.",
        )
    for name, origin in origins.items():
        rejection = re.sub(rf"([\"`]?)(?<![\w.]){re.escape(name)}(?![\w.])\1", f"'kafka.{origin}'", rejection)
    raise InvalidOption(f"librdkafka rejects the 'kafka.' options: {rejection.rstrip('.')}.", remedy="Correct it.")


def _requests_token(name: str) -> bool:
    return name in (PROVIDER, "sasl.oauthbearer.token.endpoint.url")


def _without_network(trial: Mapping[str, str]) -> dict[str, str]:
    """Removes the settings that make a new client connect to a broker, a token endpoint, a KDC or a name server."""
    trial_settings = {name: value for name, value in trial.items() if name != "bootstrap.servers"}
    # confluent_kafka cannot decode a log line in which librdkafka has truncated a long non-ASCII client.id. Any other
    # id works.
    trial_settings["client.id"] = "trial"
    if trial.get("sasl.oauthbearer.method") == "oidc":
        trial_settings["sasl.oauthbearer.method"] = "default"
    if trial.get("sasl.mechanism") == "GSSAPI":
        trial_settings["sasl.kerberos.min.time.before.relogin"] = "0"
    if trial.get("client.dns.lookup") == "resolve_canonical_bootstrap_servers_only":
        trial_settings["client.dns.lookup"] = "use_all_dns_ips"
    return trial_settings


def _check_protocol(protocol: str, properties: Iterable[tuple[str, str]]) -> None:
    if protocol not in ("classic", "consumer"):
        raise InvalidOption("Option 'kafka.group.protocol' must be 'classic' or 'consumer'.")
    for name, _ in properties:
        if protocol == "consumer" and name in CLASSIC_ONLY:
            raise InvalidOption(
                f"Option 'kafka.{name}' is not supported with 'kafka.group.protocol=consumer': the broker sets it.",
                remedy=f"Set 'consumer.{name}' of the group on the broker (kafka-configs.sh --entity-type groups).",
            )
