"""The stored states that the batches of a query search.

``streamgroups.query.operator_states`` and ``streamgroups.query.joined_states`` call it on the driver before each batch.
``streamgroups_operators.batch_search`` reads the files. Source: SEMANTICS S10.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from streamgroups.state.joined_lookup import Choices
from streamgroups.state.origins import StateOrigin
from streamgroups.state.state_lookup import Choice, Empty, Position


class StateSearch:
    """The states of the operators of a query. This base class has none: each position continues with an empty state."""

    def searching(self) -> AbstractContextManager[None]:
        """Begins the searches of one batch, and ends them. These share what they read."""
        return nullcontext()

    def find(self, position: Position) -> Choice:
        """Returns the state of a position that names none (:func:`streamgroups.state.state_lookup.choose`).

        Raises:
            StateMissing: if no state leads to the position.
            StateUnreachable: if the storage does not answer.
        """
        return Empty(position.next_offset)

    def find_both(self, left: Position, right: Position) -> Choices:
        """Returns the states of a left and a right partition (:func:`streamgroups.state.joined_lookup.choose_together`).

        Raises:
            StateMissing: if no states lead to both positions.
            StateUnreachable: if the storage does not answer.
        """
        return self.find(left), self.find(right)

    def is_written(self, position: Position, origin: StateOrigin) -> bool:
        """Whether the state of a position exists that continues the given one
        (:func:`streamgroups.state.state_lookup.is_continued`).

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        return True
