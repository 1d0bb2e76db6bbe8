"""An instance whose processors copy a topic, each record exactly once, on workers with Spark."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from integration_tests.instances import RealInstance
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import read_committed
from streamgroups_testkit.spark_sessions import jvm_options
from streamgroups_testkit.waits import wait_until

PARTITIONS = 2


def spark_worker(master: str = "local[2]", more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The template of the command of a worker with Spark.

    Args:
        master: the Spark master.
        more: more settings of Spark.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": jvm_options(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "50ms",
        **more,
    }
    options = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
    return f"{{python}} {{program}} {{arguments}} --master '{master}' {options}"


@dataclass
class CopyingInstance(RealInstance):
    """An instance with one source topic.

    Args:
        new_topic: creates a topic.
        source: the topic that all processors read.
        outputs: the output topic of each processor.
    """

    new_topic: Callable[..., str] = field(default=str, repr=False)
    source: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    written: int = 0

    @property
    def files(self) -> Path:
        return self.directory / "processors"

    def declare(
        self,
        *names: str,
        sql: str = "SELECT key, value FROM input",
        more: str = "",
        replicas: int = 1,
        trigger: str = "",
    ) -> None:
        """Writes the files of processors.

        Args:
            names: their names.
            sql: their step.
            more: more options of the source, which begin with a comma.
            replicas: the number of their replicas.
            trigger: the interval of their batches.
        """
        self.source = self.source or self.new_topic(PARTITIONS)
        self.files.mkdir(exist_ok=True)
        for name in names:
            self.outputs.setdefault(name, self.new_topic(PARTITIONS))
            (self.files / f"{name}.yaml").write_text(
                f"name: {name}\nreplicas: {replicas}\n"
                f"source: {{connection: prod, subscribe: {self.source}, startingOffsets: earliest, "
                f"kafka.session.timeout.ms: 6000{more}}}\n"
                f"steps:\n  - sql: {sql}\n"
                f"sink: {{connection: prod, topic: {self.outputs[name]}}}\n"
                + (f"trigger: {{processingTime: {trigger}}}\n" if trigger else "")
            )

    def produce(self, count: int) -> None:
        produce(self.bootstrap, self.source, count, partitions=PARTITIONS, first=self.written)
        self.written += count

    def copied(self, name: str) -> Counter[bytes]:
        """The values that an independent reader finds in the output of a processor."""
        return Counter(bytes(it.value).strip() for it in read_committed(self.bootstrap, self.outputs[name]))

    def has_all(self, name: str, count: int) -> bool:
        """Whether a processor has written this number of copies."""
        return self.copied(name).total() >= count

    def wait_for_more(self, *names: str) -> None:
        """Waits until each processor has copied more records."""
        for name in names:
            before = len(self.copied(name))
            wait_until(lambda it=name, than=before: len(self.copied(it)) > than, f"{name} copies more", 180)  # type: ignore[misc]

    def check(self, name: str, count: int) -> None:
        """Each record is copied once."""
        found = self.copied(name)
        assert len(found) == count
        assert set(found.values()) == {1}


def connections_file(directory: Path, bootstrap: str) -> Path:
    """Writes the file of connections."""
    path = directory / "config.toml"
    path.write_text(f'[connections.prod]\ntype = "kafka"\nbootstrap-servers = "{bootstrap}"\n')
    path.chmod(0o600)
    return path
