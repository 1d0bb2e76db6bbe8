"""py4j logs each option at the level DEBUG, with the passwords. The setting of docs/security.rst prevents this."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters

from unit_tests.documents import ROOT, blocks

COMMAND = "c\no42\noption\nssasl.jaas.config\nspassword=hunter2;\ne\n"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """The levels of before, after the test."""
    loggers = [logging.getLogger(), logging.getLogger("py4j")]
    before = [it.level for it in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def sent(caplog: pytest.LogCaptureFixture) -> str:
    """The text that the root logger receives while PySpark passes an option to the JVM."""
    caplog.clear()
    own, jvm = socket.socketpair()
    with jvm:
        gateway = SimpleNamespace(pool=None)
        connection = ClientServerConnection(JavaParameters(), PythonParameters(), gateway, None)
        connection.socket, connection.stream = own, own.makefile("rb")
        jvm.sendall(b"!yv\n")
        assert connection.send_command(COMMAND) == "yv"
        connection.close()
    return caplog.text


def test_the_documented_level_keeps_passwords_out_of_logs(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    assert "hunter2" in sent(caplog)
    (block,) = (it for it in blocks(ROOT / "docs" / "security.rst") if "py4j" in it.code)
    exec(block.code, {})
    assert "hunter2" not in sent(caplog)
