"""P1: a view for a step exists for a block only, and a view of the user exists again after it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups_spark.internals.private_spark import view_of


class Option:
    """Scala's ``Option``."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> str | None:
        return self._value


class Session:
    """The temporary views of a session, as Spark's ``SessionCatalog`` has them."""

    def __init__(self, views: dict[str, str]) -> None:
        self.views = views
        catalog = SimpleNamespace(
            getRawTempView=lambda name: Option(views.get(name)),
            dropTempView=lambda name: views.pop(name, None) is not None,
            createTempView=lambda name, view, _: views.update({name: view}),
        )
        state = SimpleNamespace(catalog=lambda: catalog)
        self._jsparkSession = SimpleNamespace(sessionState=lambda: state)

    def frame(self, *, is_rejected: bool = False) -> Any:
        def create(name: str) -> None:
            if is_rejected:
                raise ValueError("no view")
            assert name not in self.views, "Spark drops the cached rows of a view that it replaces"
            self.views[name] = "rows"

        return SimpleNamespace(sparkSession=self, createOrReplaceTempView=create)


@pytest.mark.parametrize("views", [{}, {"input": "of the user", "other": "x"}])
def test_P1_the_views_of_the_user_are_unchanged(views: dict[str, str]) -> None:
    session = Session(dict(views))
    with view_of(session.frame(), "input"):
        assert session.views == {**views, "input": "rows"}
    assert session.views == views
    with pytest.raises(KeyError), view_of(session.frame(), "input"):
        raise KeyError
    assert session.views == views
    with pytest.raises(ValueError, match="no view"), view_of(session.frame(is_rejected=True), "input"):
        pass
    assert session.views == views
