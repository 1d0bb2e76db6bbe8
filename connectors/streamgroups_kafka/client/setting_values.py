"""The values of client settings that are numbers, or true or false.

Called by :mod:`streamgroups_kafka.client.java_settings` for each setting, and by the options of the sink. librdkafka reads a number
with C's ``strtol``: it ignores a suffix, a number with a leading zero is octal, and only the last 32 bits are used. So
``session.timeout.ms=45s`` would be 45 ms. The Java client rejects a suffix, and reads zeros and a sign ``+`` in front as here. Source:
librdkafka 2.16, ``rdkafka_conf.c``; Kafka's ``ConfigDef``.
"""

from __future__ import annotations

import re

from streamgroups.errors import InvalidOption
from streamgroups.json_values import MAX_INT32
from streamgroups_kafka.client.jaas import words

#: librdkafka's properties that are numbers.
NUMBERS = words(
    """
    broker.address.ttl connections.max.idle.ms coordinator.query.interval.ms fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms heartbeat.interval.ms log_level
    max.in.flight.requests.per.connection max.poll.interval.ms message.max.bytes metadata.recovery.rebootstrap.trigger.ms
    queued.max.messages.kbytes queued.min.messages receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.min.time.before.relogin
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds session.timeout.ms
    socket.connection.setup.timeout.ms socket.max.fails socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms
    """
)
#: librdkafka accepts 0 and -1 too, and never refreshes then. New leaders, new topics and other topic ids would not be found.
_REFRESH = "topic.metadata.refresh.interval.ms"
#: librdkafka's properties that are true or false.
FLAGS = words(
    """
    check.crcs enable.metrics.push enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    log.connection.close log.thread.name sasl.oauthbearer.assertion.claim.jti.include socket.keepalive.enable
    socket.nagle.disable
    """
)
_NUMBER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>[0-9]{1,19})")
#: librdkafka's spellings.
_FLAG_VALUES = {"true": "true", "t": "true", "1": "true", "false": "false", "f": "false", "0": "false"}


def checked_value(name: str, value: str, origin: str) -> str:
    """Returns the value in the form that librdkafka reads as Java does. librdkafka checks most ranges.

    Args:
        name: librdkafka's name.
        value: the value.
        origin: the name of the option, for the error.

    Raises:
        InvalidOption: if it is not a number, or neither true nor false, or disables the refresh of metadata. It does not contain
            the value, which can be a secret by mistake.

    >>> checked_value("socket.timeout.ms", "09000", "request.timeout.ms")
    '9000'
    >>> checked_value("socket.timeout.ms", "9s", "request.timeout.ms")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.request.timeout.ms' is not a whole number. Write digits without a \
unit, such as 45000.
    >>> checked_value("check.crcs", "1", "check.crcs")
    'true'
    """
    if name in NUMBERS:
        number = number_of(value, origin)
        if name == _REFRESH and number < 1:
            raise InvalidOption(
                f"Option 'kafka.{origin}' is less than 1, which disables the refresh of metadata: recreated topics and new leaders "
                "would not be found.",
                remedy="Set it to 1 or more, or leave it out: the default is 5000.",
            )
        return str(number)
    if name in FLAGS:
        flag = _FLAG_VALUES.get(value.lower())
        if flag is None:
            raise InvalidOption(f"Option 'kafka.{origin}' is neither true nor false.", remedy="Write true or false.")
        return flag
    return value


def number_of(value: str, origin: str) -> int:
    """Returns the number that a setting contains.

    Args:
        value: the value, without spaces around it.
        origin: the name of the option, for the error.

    Raises:
        InvalidOption: if it is not a number of 32 bits, or has a unit or a separator.

    >>> number_of("-1", "compression.zstd.level")
    -1
    """
    found = _NUMBER.fullmatch(value)
    if found is None:
        raise InvalidOption(
            f"Option 'kafka.{origin}' is not a whole number.", remedy="Write digits without a unit, such as 45000."
        )
    number = int(found["digits"])
    if number > MAX_INT32:
        raise InvalidOption(
            f"Option 'kafka.{origin}' is a number of more than 32 bits.",
            remedy=f"librdkafka reads numbers up to {MAX_INT32}.",
        )
    return -number if found["sign"] == "-" else number
