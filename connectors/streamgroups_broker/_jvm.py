"""Command lines of Kafka's Java programs, and their logging configuration.

Used by ``embedded`` and ``_prepare``. Pure functions, except `write_logging`. Source: Kafka 4 logs through log4j 2
(KIP-653); ``_ivy`` adds a bridge to it for Kafka 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgroups_broker._cache import KafkaJars
from streamgroups_broker._java import Java

#: Kafka's log message when a node serves requests.
STARTED = b"Kafka Server started"

_BROKER_LOGGING = """\
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="${sys:streamgroups.log}" filePattern="${sys:streamgroups.log}.%i">
      <PatternLayout pattern="%d{ISO8601} %p %m (%c)%n%throwable"/>
      <SizeBasedTriggeringPolicy size="64 MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <!-- Every start prints the whole configuration several times. -->
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="WARN"/>
    <Logger name="kafka.server.KafkaConfig" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""

TOOL_LOGGING = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="console" target="SYSTEM_ERR"><PatternLayout pattern="%p %m (%c)%n%throwable"/></Console>
  </Appenders>
  <Loggers><Root level="ERROR"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""

# A small heap and the serial collector, because the broker shares the machine with Spark.
_SMALL = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Dlog4j2.disable.jmx=true")


def write_logging(directory: Path) -> None:
    """Writes the logging configurations for `NodeCommands` and `tool_command_line`."""
    (directory / "log4j2-broker.xml").write_text(_BROKER_LOGGING, encoding="utf-8")
    (directory / "log4j2-tools.xml").write_text(TOOL_LOGGING, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class NodeCommands:
    """The commands for the nodes of one cluster.

    Args:
        java, jars: the Java and the jars.
        heap_mb: the maximum heap, in MiB.
        options: more options for the JVM.
    """

    java: Java
    jars: KafkaJars
    heap_mb: int
    options: tuple[str, ...] = ()

    def run(self, node: Path) -> list[str]:
        """Returns the command that runs the node of a directory.

        Its parent directory contains the logging configuration.
        """
        return [
            self.java.executable,
            f"-Xmx{self.heap_mb}m",
            *_SMALL,
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={node.parent / 'log4j2-broker.xml'}",
            f"-Dstreamgroups.log={node / 'broker.log'}",
            *self.options,
            "-cp",
            self.jars.classpath,
            "kafka.Kafka",
            str(node / "server.properties"),
        ]


def tool_command_line(java: Java, jars: KafkaJars, logging: Path, main_class_and_args: Sequence[str]) -> list[str]:
    """Returns the command that runs one of Kafka's tools. It logs only errors, to standard error."""
    return [
        java.executable,
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        *_SMALL,
        f"-Dlog4j2.configurationFile={logging / 'log4j2-tools.xml'}",
        "-cp",
        jars.classpath,
        *main_class_and_args,
    ]
