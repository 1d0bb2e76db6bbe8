"""The options of ``python -m integration_tests.campaign``, and the command that repeats a campaign. Used by
``integration_tests.campaign``.
"""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration_tests.campaign.computed import COMPUTED
from integration_tests.campaign.record import add_options
from integration_tests.campaign.turns import (
    CLUSTER_VICTIMS,
    CONTROL_SABOTAGES,
    CURSORS,
    EXPLICIT_VICTIMS,
    KINDS,
    SABOTAGES,
    SAVEPOINT_SABOTAGES,
    SELECTABLE,
    SINK_VICTIMS,
    STATE_KINDS,
    STATE_SABOTAGES,
    STORE_VICTIMS,
    VICTIMS_OF,
    Turn,
    all_turns,
    revealing_turns,
    zombie_turns,
)
from streamgroups_broker import DEFAULT_KAFKA_VERSION

#: The longest permitted time until the group has read all records (I8), in seconds.
MAX_LAG_S = 300.0
SINKS, PROTOCOLS = ("kafka", "postgres", "delta", "none"), ("classic", "consumer")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the command line.

    Args:
        kind: one of ``campaign.turns.KINDS``.
        kills: the number of faults.
        victims: the kinds of faults.
        sabotaged: the disabled safeguard; empty if all are enabled.
        n_members: the number of queries.
        n_nodes: the number of brokers.
        kafka_version: their release.
        seed: the seed of the order of turns, and of the targets of resets.
        timeout_s: the timeout of one campaign, in seconds.
        max_lag_s: the longest permitted time until the group has read all records (I8), in seconds.
        faults_s: the time after which no more faults are injected, in seconds.
        results: the file for results; ``None``: none is written.
        is_recorded: whether the result of each campaign is added to the record in the documents.
        n_resets: the number of resets of zombies.
        n_savepoints: the number of complete savepoints.
        per_second: the rate of the producer, in records per second.
        turns: the points and their faults; empty: those of the seed.
        is_shrunk: whether a failing campaign is repeated with fewer faults.
        max_shrink_runs: the maximum number of these runs.
        storage: where states of windows and tables of Delta are: ``disk`` or ``s3``, an object store of the campaign.
    """

    kind: str
    kills: int
    victims: Sequence[str]
    sabotaged: str
    n_members: int
    n_nodes: int
    kafka_version: str
    seed: int
    timeout_s: float
    max_lag_s: float
    faults_s: float
    results: Path | None
    is_recorded: bool
    n_resets: int
    n_savepoints: int
    per_second: int
    turns: tuple[Turn, ...]
    is_shrunk: bool
    max_shrink_runs: int
    storage: str


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m integration_tests.campaign", description=description)
    made.add_argument("sinks", nargs="+", choices=SINKS)
    made.add_argument("--kills", type=int, default=100, help="for each sink and protocol")
    made.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS, help="of the group")
    made.add_argument("--kind", choices=KINDS, default="stateless", help="of the queries")
    made.add_argument("--members", type=int, choices=(1, 2, 3, 4), default=2, help="the number of queries")
    made.add_argument(
        "--faults",
        nargs="+",
        choices=(*SELECTABLE, *EXPLICIT_VICTIMS, *CLUSTER_VICTIMS),
        default=SELECTABLE,
        help="what happens at the points; default: all but " + ", ".join((*EXPLICIT_VICTIMS, *CLUSTER_VICTIMS)),
    )
    made.add_argument(
        "--resets", type=int, default=0, help="of the group; with --kind zombies, for each sink and protocol"
    )
    made.add_argument(
        "--sabotaged",
        choices=(*SABOTAGES, *STATE_SABOTAGES, *SAVEPOINT_SABOTAGES, *CONTROL_SABOTAGES),
        default="",
        help="take it away: the exit code is 0 if the campaign notices the anomaly of its name in campaign.controls",
    )
    made.add_argument(
        "--savepoints", type=int, default=15, help="complete ones, for each sink and protocol; with --kind savepoints"
    )
    made.add_argument("--nodes", type=int, choices=(1, 2, 3), default=1, help="of the cluster; they are killed in turn")
    made.add_argument("--kafka-version", default=DEFAULT_KAFKA_VERSION, help="the release of the cluster")
    made.add_argument("--per-second", type=int, default=400, help="the rate of the producer, in records")
    made.add_argument("--seed", type=int, default=1, help="of the order of turns")
    made.add_argument("--timeout", type=float, default=3600, help="seconds for each sink and protocol")
    made.add_argument(
        "--max-lag",
        type=float,
        default=MAX_LAG_S,
        help="seconds until the group has read all records; it waits twice as long",
    )
    made.add_argument("--minutes", type=float, default=math.inf, help="of faults, for each sink and protocol")
    add_options(made)
    made.add_argument(
        "--turns",
        nargs="+",
        type=turn,
        default=(),
        help="point=fault, as after-commit=query or before-commit=response:EndTxn, instead of those of the seed",
    )
    made.add_argument("--shrink", action="store_true", help="repeat a failing campaign with fewer faults")
    made.add_argument("--shrink-runs", type=int, default=20, help="the maximum number of these campaigns")
    made.add_argument(
        "--storage",
        choices=("disk", "s3"),
        default="disk",
        help="of states of windows and of tables of Delta; s3 has faults",
    )
    return made


def turn(text: str) -> Turn:
    """A point and its fault.

    Raises:
        ValueError: if the text is not ``point=fault``.

    >>> turn("after-commit=query")
    ('after-commit', 'query')
    """
    point, separator, fault = text.partition("=")
    if not (point and separator and fault):
        raise ValueError(f"'{text}' is not point=fault")
    return point, fault


def settings_of(given: argparse.Namespace) -> Settings:
    """The parsed options."""
    return Settings(
        kind=given.kind,
        kills=given.kills,
        victims=given.faults,
        sabotaged=given.sabotaged,
        n_members=given.members,
        n_nodes=given.nodes,
        kafka_version=given.kafka_version,
        seed=given.seed,
        timeout_s=given.timeout,
        max_lag_s=given.max_lag,
        faults_s=given.minutes * 60,
        results=given.results,
        is_recorded=given.record,
        n_resets=given.resets,
        n_savepoints=given.savepoints,
        per_second=given.per_second,
        turns=tuple(given.turns),
        is_shrunk=given.shrink,
        max_shrink_runs=given.shrink_runs,
        storage=given.storage,
    )


def turns_of(settings: Settings, sink: str, protocol: str) -> list[Turn]:
    """The turns of one campaign."""
    if settings.turns:
        return list(settings.turns)
    if settings.sabotaged:
        return revealing_turns(sink, settings.sabotaged, settings.kills)
    if settings.kind == "zombies":
        # The campaigns with both protocols have other points.
        skipped = settings.kills if protocol == "consumer" else 0
        return zombie_turns(sink, settings.kills, settings.n_resets, settings.seed, skipped=skipped)
    has_store = settings.storage == "s3" and (sink == "delta" or settings.kind in STATE_KINDS)
    of_storage = (*SINK_VICTIMS[sink], *(STORE_VICTIMS if has_store else ()))
    allowed = (*VICTIMS_OF[settings.kind], *of_storage, *EXPLICIT_VICTIMS, *cluster_victims(settings.kind))
    possible = [victim for victim in settings.victims if victim in allowed]
    return all_turns(sink, settings.kills, possible, settings.seed, settings.kind, protocol)


def cluster_victims(kind: str) -> tuple[str, ...]:
    """The faults of the cluster that a kind of queries supports. Windows count offsets: without gaps and marks of transactions. The plain
    programs of the other computed rows have all records: without gaps.

    >>> cluster_victims("windows")
    ('storm', 'duplicate-member')
    """
    of_kind = {"stateless": CLUSTER_VICTIMS, "windows": ("storm", "duplicate-member")}
    of_kind |= {CURSORS: ("transactions", "hanging")}
    of_kind |= dict.fromkeys(COMPUTED, ("storm", "duplicate-member", "transactions", "hanging"))
    # The queries of the others use more topics than the permissions name.
    for one_topic in ("dedup", "function", "chained"):
        of_kind[one_topic] += ("credentials", "rotation")
    return of_kind.get(kind, ())


def protocols_of(settings: Settings, sink: str, protocols: Sequence[str]) -> list[str]:
    """The group protocols of the campaigns with a sink. Queries that share a join need an assignor of the broker, which KIP-848 has. Brokers
    before 4.0 do not have KIP-848.

    Raises:
        ValueError: if no campaign is left, or the kind has no such sink.
    """
    if (settings.kind == CURSORS) != (sink == "none"):
        raise ValueError(f"the sink of --kind {CURSORS} is 'none', and that of the others is not")
    left = [it for it in protocols if settings.kind != "join" or it == "consumer"]
    if not left:
        raise ValueError("a join needs --protocols consumer")
    if settings.kafka_version < "4":
        left = [it for it in left if it == "classic"]
    if not left:
        raise ValueError(f"Kafka {settings.kafka_version} has the protocol classic only")
    return left


def has_fault(settings: Settings, victim: str) -> bool:
    """Whether the campaigns can have a fault, which their broker must support."""
    return victim in (*settings.victims, *(it for _, it in settings.turns))


def replay_command(settings: Settings, sink: str, protocol: str) -> str:
    """The command that runs one campaign again, with the same turns.

    Args:
        settings: the options of the campaign.
        sink: its sink.
        protocol: its group protocol.
    """
    command = ["python", "-m", "integration_tests.campaign", sink, "--protocols", protocol, "--kind", settings.kind]
    command += ["--seed", str(settings.seed)]
    if settings.turns:
        command += ["--turns", *(f"{point}={fault}" for point, fault in settings.turns)]
    else:
        command += ["--kills", str(settings.kills)]
        # The option has no effect on the order of zombies.
        command += ["--faults", *settings.victims] if tuple(settings.victims) != SELECTABLE else []
    given = {
        "--sabotaged": (settings.sabotaged, ""),
        "--members": (settings.n_members, 2),
        "--nodes": (settings.n_nodes, 1),
        "--kafka-version": (settings.kafka_version, DEFAULT_KAFKA_VERSION),
        "--resets": (settings.n_resets, 0),
        "--per-second": (settings.per_second, 400),
        "--max-lag": (settings.max_lag_s, MAX_LAG_S),
        "--storage": (settings.storage, "disk"),
    }
    given |= {"--savepoints": (settings.n_savepoints, 15)} if settings.kind == "savepoints" else {}
    for name, (value, default) in given.items():
        command += [name, str(value)] if value != default else []
    return shlex.join(command)
