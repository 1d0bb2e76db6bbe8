"""The broker's expiry of the offsets of a group, of transactional ids and of producer ids. Used by ``campaign.cluster_faults``.

All queries are killed while one is at a point. They stay down until the broker has forgotten the offsets of the group and the
transactional ids of the campaign. Then they start again. ``docs/guarantees.rst`` ("What Kafka forgets") defines what must happen: a
ledger continues; ``KafkaSink`` continues after a finished batch, or fails with ``PositionsDiffer`` and two commands. Whether the point is
before or after the commit decides which of them an operator runs. Source: KIP-98, KIP-211; SEMANTICS F5.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.windows import PARTITIONS
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.waits import wait_until

#: Kafka's shortest retention of offsets is one minute. The other ids expire in a shorter time than this minute.
EXPIRY_PROPERTIES = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "transactional.id.expiration.ms": "20000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": "20000",
    "producer.id.expiration.check.interval.ms": "1000",
}
#: The minute of the offsets, and the timeout of an open transaction before it.
_EXPIRY_S = 240.0
_STARTED_S = 240.0
#: The columns of the tool: id, coordinator, producer id and state.
_N_COLUMNS = 4
_ROOT = Path(__file__).parent.parent.parent
#: The points after the commit of the output, whose batch Spark has not finished.
_AFTER_OUTPUT = ("after-commit",)
_COMMAND = re.compile(r"printf '%s\\n' (?:'[^']*' )+> positions\.csv")


def remedies(error: str) -> tuple[str, str] | None:
    """The two commands of a ``PositionsDiffer``: for a batch whose output is written, and for one without output. ``None`` for another
    error.

    >>> text = "If it contains it: printf '%s\\\\\\\\n' 't,0,20' > positions.csv. If not: printf '%s\\\\\\\\n' 't,0,10' > positions.csv."
    >>> remedies(text.replace("\\\\\\\\", "\\\\"))[1]
    "printf '%s\\\\n' 't,0,10' > positions.csv"
    """
    found = _COMMAND.findall(error)
    return (found[0], found[1]) if len(found) >= 2 else None


class Expiry:
    """Lets the broker forget a group.

    Args:
        kafka: the broker, with :data:`EXPIRY_PROPERTIES`.
        directory: the directory of the logs of the members.
        group: the group.
        members: its members.
        committed: returns the committed offsets.
        see_to_all: starts the members that are not running.
        output: the output topic; empty for other sinks.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        directory: Path,
        group: str,
        members: Sequence[CampaignMember],
        committed: Callable[[], Mapping[int, int]],
        see_to_all: Callable[[], bool],
        output: str,
    ) -> None:
        self._kafka, self._directory, self._group, self._output = kafka, directory, group, output
        self._members, self._committed, self._see_to_all = members, committed, see_to_all
        #: How often the offsets have expired, the numbers of expired transactional ids and of producer ids of the output, and of commands of
        #: an operator.
        self.n_expired, self.n_ids, self.n_producers, self.n_remedies = 0, 0, 0, 0

    def kill_all(self) -> None:
        """Kills all members.

        Raises:
            AssertionError: if several members write to Kafka. Without offsets, no checkpoint has the positions of all partitions then, so
                an operator must commit them.
        """
        assert len(self._members) == 1 or not self._output, "the expiry with KafkaSink needs --members 1"
        for member in self._members:
            member.kill()

    def expire(self, point: str) -> None:
        """Waits until the broker has forgotten the group, and starts the members.

        Args:
            point: the point at which a member was killed.

        Raises:
            AssertionError: if the group had no offsets, they or the ids do not expire in time, or the group does not continue.
        """
        assert self._committed(), f"group {self._group} has no offsets that can expire"
        ids = self._transactional_ids()
        producers = self._producer_ids()
        assert (ids and producers) or not self._output, "the sink has no transactional id, or its output no producer id"
        wait_until(lambda: not self._committed(), f"the offsets of {self._group} expire", _EXPIRY_S, 2.0)
        wait_until(lambda: not self._transactional_ids() & ids, f"the ids {ids} expire", _EXPIRY_S, 2.0)
        wait_until(lambda: not self._producer_ids() & producers, f"the ids {producers} expire", _EXPIRY_S, 2.0)
        self.n_expired, self.n_ids = self.n_expired + 1, self.n_ids + len(ids)
        self.n_producers += len(producers)
        sizes = {it.name: it.log.stat().st_size for it in self._members}
        self._see_to_all()
        is_remedied = False

        def continues() -> bool:
            nonlocal is_remedied
            if self._committed():
                return True
            for member in self._members:
                text = member.log.read_bytes()[sizes[member.name] :].decode(errors="replace")
                if not is_remedied and (commands := remedies(text)) is not None:
                    self._remedy(commands[0 if point in _AFTER_OUTPUT else 1])
                    is_remedied = True
            self._see_to_all()
            return False

        wait_until(continues, f"group {self._group} continues after the expiry", _STARTED_S, 1.0)

    def _remedy(self, command: str) -> None:
        """Commits the positions of the error, as it requires, while no member is alive."""
        for member in self._members:
            # A query that has failed with this error can have ended.
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self._wait_until_empty()
        subprocess.run(command, shell=True, check=True, cwd=self._directory)
        run_main = [sys.executable, "-c", "from streamgroups_cli import main; main()", "groups", "import"]
        to = ["positions.csv", "--group", self._group, "--execute", "-b", self._kafka.bootstrap_servers]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "connectors")])}
        done = subprocess.run(
            [*run_main, *to], cwd=self._directory, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.n_remedies += 1

    def _wait_until_empty(self) -> None:
        def is_empty() -> bool:
            admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers, "log_level": 0})
            try:
                return not admin.describe_consumer_groups([self._group])[self._group].result(30).members
            except KafkaException:
                return True

        wait_until(is_empty, f"group {self._group} is empty", 60)

    def _transactional_ids(self) -> set[str]:
        """The transactional ids of the broker, by Kafka's own tool."""
        lines = self._transactions("list").splitlines()
        rows = [line.split() for line in lines if not line.startswith(("TransactionalId", "["))]
        return {row[0] for row in rows if len(row) == _N_COLUMNS}

    def _producer_ids(self) -> set[int]:
        """The producer ids that the partitions of the output store, by Kafka's own tool."""
        found: set[int] = set()
        for p in range(PARTITIONS) if self._output else ():
            described = self._transactions("describe-producers", "--topic", self._output, "--partition", str(p))
            rows = [line.split() for line in described.splitlines()]
            found.update(int(row[0]) for row in rows if row and row[0].isdigit())
        return found

    def _transactions(self, *arguments: str) -> str:
        """The output of Kafka's tool for transactions."""
        done = self._kafka.run_tool("transactions", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
