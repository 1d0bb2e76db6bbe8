"""Runs a broker until a signal stops it.

Used by ``streamgroups broker run``. Source: ``signal(7)``.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from streamgroups_broker.embedded import EmbeddedKafka

_POLL_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(kafka: EmbeddedKafka, ready: Callable[[EmbeddedKafka], None]) -> None:
    """Starts a broker, and stops it in an orderly way at SIGINT, SIGTERM or SIGHUP.

    Args:
        kafka: the broker, not yet started.
        ready: called when it serves requests.

    Raises:
        EmbeddedBrokerError: if it did not start, or ended by itself.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals_raise())
        stack.callback(kafka.stop)
        # From here a second Ctrl-C must not interrupt the orderly stop.
        stack.callback(_ignore_signals)
        try:
            kafka.start()
            ready(kafka)
            while True:
                kafka.require_running()
                time.sleep(_POLL_S)
        except _Stopped:
            return


class _Stopped(BaseException):
    """A signal requested the stop of the serving process."""


@contextmanager
def _signals_raise() -> Iterator[None]:
    def request(number: int, frame: FrameType | None) -> None:
        raise _Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, request) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
