"""Takes ``docs/images/instance.png``, the picture of ``docs/instances.rst``, from a run of an instance::

    PYTHONPATH=.:connectors python docs/site/instance_picture.py docs/images/instance.png

It starts a broker, a manager and two workers with Spark, and writes the page of ``instance status --html``. The program
``chromium`` draws it. Source: SEMANTICS P2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from integration_tests.command_line import streamgroups
from integration_tests.copying_instance import spark_worker
from integration_tests.instances import RealInstance
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.producing import Load
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until

#: The processors with the interval of their batches.
_PROCESSORS = {"departures": 2, "late-flights": 5, "cancelled": 10, "diversions": 5, "gates": 15}
_COUNTED = "late-flights"
_SIZE = "900,600"
_RUN_S = 40


def _text(name: str, interval_s: int) -> str:
    steps = "  - sql: SELECT key, value FROM input\n"
    if name == _COUNTED:
        steps = (
            "  - windows: {on: timestamp, by: [key], window: {tumbling: 10 seconds}, aggregate: {n: count(*)}, "
            "prepartitioned: true}\n"
            "  - sql: SELECT key, CAST(n AS STRING) AS value FROM input\n"
        )
    return (
        f"name: {name}\nsource: {{connection: prod, subscribe: flights, startingOffsets: earliest}}\nsteps:\n{steps}"
        f"sink: {{connection: prod, topic: {name}}}\ntrigger: {{processingTime: {interval_s} seconds}}\n"
    )


def main(picture: Path) -> None:
    """Runs the instance, and takes the picture."""
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as name:
        directory, servers = Path(name), kafka.bootstrap_servers
        (directory / "config.toml").write_text(f'[connections.prod]\ntype = "kafka"\nbootstrap-servers = "{servers}"\n')
        os.environ |= {
            "STREAMGROUPS_CONFIG": f"{directory}/config.toml",
            "STREAMGROUPS_PROCESSORS": f"{directory}/runs",
        }
        admin = AdminClient({"bootstrap.servers": servers})
        for topic in ("flights", *_PROCESSORS):
            create_topic(admin, topic, 4)
        files = directory / "processors"
        files.mkdir()
        for processor, interval_s in _PROCESSORS.items():
            (files / f"{processor}.yaml").write_text(_text(processor, interval_s))
        instance = RealInstance(servers, directory, name="board")
        try:
            instance.command("processors", "apply", "-f", str(files), "--execute")
            with (
                instance.manager("--slots", "3", "--worker-command", spark_worker()),
                Load(servers, "flights", partitions=4, per_second=500),
            ):
                instance.start(*_PROCESSORS)
                instance.stop("gates")
                time.sleep(_RUN_S)
                _take(instance, directory / "board.html", picture)
        finally:
            instance.close()


def _take(instance: RealInstance, page: Path, picture: Path) -> None:
    wait_until(lambda: all(instance.view(it).progress for it in _PROCESSORS if it != "gates"), "all have a batch")
    written = streamgroups("instance", "status", instance.name, "-b", instance.bootstrap, "--html", str(page))
    assert written.returncode == 0, written.stderr
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={_SIZE}", f"--screenshot={picture}")
    subprocess.run(["chromium", *options, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
