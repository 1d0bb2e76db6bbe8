"""Rejects storage options with which a commit can replace another one. Its rows and positions would be lost without an error.

Called by ``sink`` when it is created, and by ``connected`` where it connects, because deltalake also reads the environment.
Source: deltalake 1.6 on local file systems (``MOUNT_ALLOW_UNSAFE_RENAME``), and ``object_store`` (``conditional_put``). On S3
it commits with ``If-None-Match``, also with ``AWS_S3_ALLOW_UNSAFE_RENAME``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from streamgroups.errors import InvalidOption

_TRUE = frozenset({"1", "true", "on", "yes", "y"})
#: The values that are rejected, by the names of options in lower case.
_UNSAFE = {
    "mount_allow_unsafe_rename": _TRUE,
    "allow_unsafe_rename": _TRUE,
    "aws_conditional_put": frozenset({"disabled"}),
    "conditional_put": frozenset({"disabled"}),
}
#: The options that deltalake reads from the environment, for local file systems and for object stores.
_OF_ENVIRONMENT = {True: "mount_allow_unsafe_rename", False: "aws_conditional_put"}
#: With a lock, a store needs no conditional writes.
_LOCKS = frozenset({"aws_s3_locking_provider", "s3_locking_provider"})


def has_lock(names: Iterable[str]) -> bool:
    """Whether commits use a lock of another service.

    >>> has_lock(["AWS_REGION"]), has_lock(["AWS_S3_LOCKING_PROVIDER"])
    (False, True)
    """
    return not _LOCKS.isdisjoint(name.lower() for name in names)


def check_atomic_commits(
    options: Mapping[str, object], environment: Mapping[str, str] = MappingProxyType({}), *, is_local: bool = False
) -> None:
    """Rejects options without atomic commits.

    Args:
        options: the storage options. Other values than texts are ignored.
        environment: the environment of the process that connects; empty if it is another process.
        is_local: whether the table is in a local file system. Only its variables of the environment have an effect.

    Raises:
        InvalidOption: for the first such option.

    >>> check_atomic_commits({"AWS_CONDITIONAL_PUT": "disabled", "AWS_S3_LOCKING_PROVIDER": "dynamodb"})
    >>> check_atomic_commits({"MOUNT_ALLOW_UNSAFE_RENAME": "true"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The storage option MOUNT_ALLOW_UNSAFE_RENAME=true of deltalake allows a commit to replace \
another one, whose rows and positions would be lost. Remove it. Use a file system with atomic renames, or an object store \
with conditional writes.
    """
    in_environment = {name: it for name, it in environment.items() if name.lower() == _OF_ENVIRONMENT[is_local]}
    is_locked = has_lock((*options, *environment))
    for found, where in ((options, "storage option"), (in_environment, "environment variable")):
        for name, value in found.items():
            if is_locked and name.lower().endswith("conditional_put"):
                continue
            if isinstance(value, str) and value.strip().lower() in _UNSAFE.get(name.lower(), ()):
                raise InvalidOption(
                    f"The {where} {name}={value} of deltalake allows a commit to replace another one, whose rows and positions "
                    "would be lost.",
                    remedy="Remove it. Use a file system with atomic renames, or an object store with conditional writes.",
                )
