"""Translates security settings of Java clients to librdkafka properties: JAAS logins, certificate stores, secrets.

:mod:`streamgroups_kafka.client.java_settings` calls it for the options of Spark's Kafka source, which have Java's
format. Sources: Kafka's ``JaasConfig`` (one login module, a control flag, ``name=value`` options, ``;``), the options
of the login modules that need no other system (KIP-43, KIP-84, KIP-768), PEM stores (KIP-651), and librdkafka's
CONFIGURATION.md.

The errors of this module contain no value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamgroups.connections.redaction import SHORTEST_SECRET
from streamgroups.connections.secret_names import KAFKA_SECRETS
from streamgroups.errors import InvalidOption


def words(text: str) -> frozenset[str]:
    """Splits a text into a set of names."""
    return frozenset(text.split())


_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<mark>[=;]) | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
# The options of login modules with secret values.
_SECRET_OPTION = re.compile(r"password|secret|token|key|credential|assertion", re.IGNORECASE)

#: The supported login modules: their mechanisms, and their options as librdkafka properties.
_MODULES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "PlainLoginModule": (("PLAIN",), {"username": "sasl.username", "password": "sasl.password"}),
    "ScramLoginModule": (
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        {"username": "sasl.username", "password": "sasl.password"},
    ),
    "OAuthBearerLoginModule": (
        ("OAUTHBEARER",),
        {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        },
    ),
}
_REQUIRED = frozenset({"username", "password"})
#: The words of a malformed text that are no secrets: the remedy contains some of them.
_WORDS = _FLAGS.union(*(options for _, options in _MODULES.values()))
_CLASS = re.compile(r"[\w.]*LoginModule")


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """One login module and its options.

    Args:
        module: the class name without its package.
        options: the unescaped options. They contain the password: do not print them.
    """

    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret values of the options."""
        return tuple(value for name, value in self.options.items() if _SECRET_OPTION.search(name))


def parse_jaas(text: str) -> JaasLogin:
    r"""Parses one login module.

    Args:
        text: the value of ``sasl.jaas.config``.

    Returns:
        The module and its options.

    Raises:
        InvalidOption: if the text is not one module with ``name=value`` options and a final semicolon.

    >>> login = parse_jaas('a.b.PlainLoginModule required username="ann" password="a\\"b;c";')
    >>> login.module, login.options["password"]
    ('PlainLoginModule', 'a"b;c')
    >>> login
    JaasLogin(module='PlainLoginModule')
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ";" or tokens[1].lower() not in _FLAGS:
        raise _malformed()
    options = tokens[2:-1]
    if ";" in options or len(options) % 3 or any(mark != "=" for mark in options[1::3]):
        raise _malformed()
    names, values = options[0::3], options[2::3]
    if "=" in names or "=" in values:
        raise _malformed()
    return JaasLogin(tokens[0].rpartition(".")[2], dict(zip(map(_bare, names), map(_bare, values), strict=True)))


def login_properties(login: JaasLogin, mechanism: str | None) -> dict[str, str]:
    """Returns the librdkafka properties that correspond to a login module.

    Args:
        login: the result of :func:`parse_jaas`.
        mechanism: the value of ``sasl.mechanism``; ``None`` if it was not given.

    Returns:
        Properties by librdkafka name.

    Raises:
        InvalidOption: if the module or one of its options cannot be translated, or does not match the mechanism.

    >>> login_properties(parse_jaas('x.ScramLoginModule required username=a password="b";'), "SCRAM-SHA-512")
    {'sasl.username': 'a', 'sasl.password': 'b'}
    """
    if login.module not in _MODULES:
        shown = f"'{login.module}'" if re.fullmatch(r"\w{1,60}LoginModule", login.module) else "its login module"
        raise InvalidOption(
            f"Option 'kafka.sasl.jaas.config': {shown} has no equivalent in librdkafka.",
            remedy=f"Use {', '.join(_MODULES)}, or for Kerberos 'kafka.sasl.kerberos.principal' and '.keytab'.",
        )
    mechanisms, translation = _MODULES[login.module]
    if mechanism not in mechanisms:
        raise InvalidOption(
            f"Option 'kafka.sasl.mechanism' does not match the {login.module} in 'kafka.sasl.jaas.config'.",
            remedy=f"Set 'kafka.sasl.mechanism' to {' or '.join(mechanisms)}.",
        )
    missing = sorted((_REQUIRED & translation.keys()) - login.options.keys())
    if missing:
        raise InvalidOption(
            f"Option 'kafka.sasl.jaas.config': the {login.module} requires {' and '.join(missing)}.",
            remedy='Add it as name="value" before the semicolon.',
        )
    return _translated(login, translation)


def _translated(login: JaasLogin, translation: dict[str, str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    extensions: list[str] = []
    for name, value in login.options.items():
        if name in translation:
            properties[translation[name]] = value
        elif name.startswith("extension_") and login.module == "OAuthBearerLoginModule":
            extensions.append(f"{name.removeprefix('extension_')}={value}")
        else:
            raise InvalidOption(
                f"Option 'kafka.sasl.jaas.config': a setting of the {login.module} has no equivalent in librdkafka.",
                remedy=(
                    f"Supported settings: {', '.join(translation)}. Delegation tokens and unsecured tokens are "
                    "not supported."
                ),
            )
    if extensions:
        properties["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return properties


def _tokens(text: str) -> list[str]:
    """Splits the text into words and marks. A quoted string keeps its leading quote, so that ``";"`` is not a mark."""
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed()
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append('"' + _ESCAPE.sub(_unescaped, quoted))
        elif match["mark"] or match["word"]:
            tokens.append(match["mark"] or match["word"])
    return tokens


def _bare(token: str) -> str:
    return token.removeprefix('"')


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)


def _malformed() -> InvalidOption:
    return InvalidOption(
        "Option 'kafka.sasl.jaas.config' is malformed (its value is not shown, because it may contain a password).",
        remedy='Use one module: <class>LoginModule required username="..." password="...";',
    )


#: The properties that :func:`store_properties` reads.
STORES = words(
    """
    ssl.truststore.location ssl.truststore.type ssl.truststore.certificates ssl.truststore.password
    ssl.keystore.location ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain ssl.keystore.password
    """
)
_INLINE = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
#: librdkafka's properties of the files of PEM stores.
_PEM_FILES = {"truststore": ("ssl.ca.location",), "keystore": ("ssl.key.location", "ssl.certificate.location")}
_BINARY = ("JKS", "PKCS12")
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.+?)-----END \1-----", re.DOTALL)


def store_properties(given: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Translates PEM stores to librdkafka's properties. Binary stores keep Java's names: ``key_stores`` reads them.

    Args:
        given: the options with their Java names.

    Returns:
        A tuple for each property: librdkafka's name, the name of the original option, the value.

    Raises:
        InvalidOption: for a store of an unknown type, or text that is not PEM.

    >>> store_properties({"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"})
    [('ssl.ca.location', 'ssl.truststore.location', '/ca.pem')]
    """
    found = [(_INLINE[name], name, _pem(name, given[name])) for name in _INLINE if name in given]
    for store, names in _PEM_FILES.items():
        location, password = f"ssl.{store}.location", f"ssl.{store}.password"
        # Kept without a store too, so that errors and logs do not show it.
        found += [(password, password, given[password])] if password in given else []
        if not given.get(location, "").strip():
            continue
        path = given[location].strip()
        # Java's default is JKS, which reads PKCS12 too.
        kind = given.get(f"ssl.{store}.type", "JKS").strip().upper()
        if kind == "PEM":
            found += [(name, location, path) for name in names]
        elif kind in _BINARY:
            found += [(location, location, path), (f"ssl.{store}.type", f"ssl.{store}.type", kind)]
        else:
            raise InvalidOption(
                f"Option 'kafka.ssl.{store}.type' has an unsupported value.", remedy="Set it to PEM, PKCS12 or JKS."
            )
    return found


def _pem(option: str, text: str) -> str:
    """OpenSSL requires lines of 64 characters. Java also accepts PEM in one line, the usual form in an option."""
    text = text.replace("\\n", "\n")
    blocks = [(label, body if ":" in body else "".join(body.split())) for label, body in _PEM.findall(text)]
    if not blocks:
        raise InvalidOption(
            f"Option 'kafka.{option}' contains no PEM block (its value is not shown).",
            remedy="It must contain -----BEGIN ...-----, the base64 text and -----END ...-----.",
        )
    return "".join(
        f"-----BEGIN {label}-----\n{body.strip() if ':' in body else _lines(body)}\n-----END {label}-----\n"
        for label, body in blocks
    )


def _lines(body: str) -> str:
    return "\n".join(body[i : i + 64] for i in range(0, len(body), 64))


#: The option with the name of a token provider: ``package.module:function``.
PROVIDER = "sasl.oauthbearer.token.provider"
_PROVIDER = re.compile(r"(?!__main__:)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_METADATA = "sasl.oauthbearer.metadata.authentication.type"
#: Other sources of tokens.
_OTHER_SOURCES = words(
    """
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.method
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.extensions
    sasl.oauthbearer.scope sasl.oauthbearer.config enable.sasl.oauthbearer.unsecure.jwt
    """
)


def oauth_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns additional properties for OAUTHBEARER: the method, which Java infers from the token endpoint.

    Args:
        properties: librdkafka's properties, and the name of a token provider.

    Returns:
        Properties to add.

    Raises:
        InvalidOption: if the properties do not define one token source.

    >>> oauth_properties({"sasl.mechanism": "PLAIN"})
    {}
    """
    if PROVIDER in properties:
        _check_provider(properties)
        return {}
    if properties.get("sasl.mechanism") != "OAUTHBEARER":
        return {}
    if properties.get(_METADATA, "").lower() == "aws_iam":
        raise InvalidOption(
            f"Option 'kafka.{_METADATA}=aws_iam' is not supported.",
            remedy=f"Set 'kafka.{PROVIDER}' to a function that returns tokens of AWS.",
        )
    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    method = properties.get("sasl.oauthbearer.method", "oidc" if url else "default").lower()
    if method == "default" and properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        return {}
    if method == "oidc" and properties.get(_METADATA, "none").lower() != "none":
        return {"sasl.oauthbearer.method": "oidc"}
    required = ["sasl.oauthbearer.token.endpoint.url"]
    if properties.get("sasl.oauthbearer.grant.type", "client_credentials").lower() == "client_credentials":
        required += ["sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"]
    missing = [f"'kafka.{name}'" for name in required if not properties.get(name)]
    if method != "oidc" or missing or not url.lower().startswith(("https://", "http://")):
        raise InvalidOption(
            "Option 'kafka.sasl.mechanism=OAUTHBEARER' requires a token endpoint or credentials for one.",
            remedy=(
                f"Set {' and '.join(missing) or repr('kafka.' + required[0])} (http or https; a token file is not "
                f"supported), or 'kafka.{PROVIDER}'."
            ),
        )
    return {"sasl.oauthbearer.method": "oidc"}


def _check_provider(properties: Mapping[str, str]) -> None:
    option = f"Option 'kafka.{PROVIDER}'"
    # The value is not shown: it could be a token.
    if _PROVIDER.fullmatch(properties[PROVIDER]) is None:
        raise InvalidOption(
            f"{option} is malformed.",
            remedy="Set it to package.module:function. Other processes import the module, so it cannot be __main__.",
        )
    if properties.get("sasl.mechanism") != "OAUTHBEARER":
        raise InvalidOption(
            f"{option} requires another mechanism.", remedy="Set 'kafka.sasl.mechanism' to OAUTHBEARER."
        )
    if not properties.get("security.protocol", "").lower().startswith("sasl_"):
        raise InvalidOption(f"{option} requires SASL.", remedy="Set 'kafka.security.protocol' to SASL_SSL.")
    others = sorted(_OTHER_SOURCES & properties.keys())
    if others:
        raise InvalidOption(
            f"{option} and 'kafka.{others[0]}' cannot be combined.",
            remedy="Set only one of them. The function returns the token with its extensions.",
        )


def secrets_of(properties: Iterable[tuple[str, str]], doubtful: Iterable[str] = ()) -> list[str]:
    """Returns all strings that must not be shown.

    Args:
        properties: names and values.
        doubtful: values that count as secrets, with any name.

    Returns:
        Secrets of at least four characters, the longest first: one may contain another.

    >>> secrets_of([("sasl.password", "hunter2"), ("client.id", "ann")])
    ['hunter2']
    """
    properties = list(properties)
    found = {part for value in doubtful for part in _parts(value)}
    found |= {part for name, value in properties if name in KAFKA_SECRETS for part in _parts(value)}
    for name, value in properties:
        if name == "sasl.jaas.config":
            try:
                found |= set(parse_jaas(value).secrets)
            except InvalidOption:
                words_of_user = re.split(r"""[\s=;"']+""", value)
                found |= {it for it in words_of_user if it not in _WORDS and not _CLASS.fullmatch(it)}
    return sorted((s for s in found if len(s) >= SHORTEST_SECRET), key=len, reverse=True)


def _parts(value: str) -> set[str]:
    """The value and its lines: a client may show one line of a PEM text."""
    return {value, value.strip(), *(line.strip() for line in value.splitlines() if "-----" not in line)}
