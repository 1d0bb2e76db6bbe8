"""A fault of a campaign. The modules of the faults define them by their names, and ``campaign.faults`` injects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from integration_tests.campaign.members import CampaignMember

#: The arguments are the id of the process at the point, and its member.
AtPoint: TypeAlias = Callable[[int, CampaignMember], None]
#: The arguments are the point, and the member whose process was there.
AfterPoint: TypeAlias = Callable[[str, CampaignMember], None]


def _nothing_at_point(_: int, __: CampaignMember) -> None:
    """All of the fault follows when the process has left its point."""


def _nothing_after_point(_: str, __: CampaignMember) -> None:
    """All of the fault happens while the process waits at its point."""


def _nothing_before() -> None:
    """The fault needs no preparation."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Args:
        begin: called while a process waits at the point.
        finish: called after the process has left it. It ends the fault, and raises an ``AssertionError`` if the fault has not happened.
        prepare: called before a process must reach the point.
        stays: whether the process stays at the point until the end of the campaign.
    """

    begin: AtPoint = _nothing_at_point
    finish: AfterPoint = _nothing_after_point
    prepare: Callable[[], None] = _nothing_before
    stays: bool = False
