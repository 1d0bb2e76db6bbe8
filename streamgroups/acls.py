"""How to grant an ACL: a sentence for the remedy of an error, with the command of Kafka.

Called by all packages that report a missing permission. Source: Kafka's documentation, "Authorization and ACLs";
``kafka-acls.sh``.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Literal, TypeAlias

Resource: TypeAlias = Literal["Topic", "Group", "TransactionalId", "Cluster"]

_FLAGS: dict[Resource, str] = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}


def grant(operation: str, resource: Resource, names: Collection[str] = (), *, prefixed: bool = False) -> str:
    """Returns how to grant one operation.

    Args:
        operation: the operation, such as ``Read``.
        resource: the type of the resource.
        names: the names of the resources; empty if they are unknown. A cluster has none.
        prefixed: whether the name is a prefix.

    >>> print(grant("Write", "Topic", ["flights"]))
    Grant Write on Topic 'flights': kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation Write --topic flights
    """
    if resource == "Cluster":
        return f"Grant {operation} on Cluster 'kafka-cluster': {_command(operation, '--cluster')}"
    flags = [argument for name in names or ("NAME",) for argument in (_FLAGS[resource], name)]
    if prefixed:
        flags += ["--resource-pattern-type", "prefixed"]
    kind = f"the prefix of {resource}" if prefixed else resource
    on = ", ".join(f"{kind} '{name}'" for name in names) or f"the {resource}"
    return f"Grant {operation} on {on}: {_command(operation, *flags)}"


def _command(operation: str, *resource: str) -> str:
    arguments = ["--add", "--allow-principal", "User:NAME", "--operation", operation, *resource]
    return f"kafka-acls.sh --bootstrap-server HOST:PORT {shlex.join(arguments)}"
