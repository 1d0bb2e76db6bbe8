"""The properties of an operator with state that its source needs, as the plan of a query contains them.

Spark shows the name of the function of ``mapInArrow`` in the plan of a query. ``state.stage`` sets it, and the source
finds it there (``bridge.plan``). The separator occurs neither in names of operators nor in names of topics. Source:
SEMANTICS S9, S10, W17, W18.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.state.joined_topics import JoinedTopics

_FLUSHES, _GROUP, _KEEPS_ON_RESET, _CHAINED, _IDLES = "flushes", "group", "keeps", "chained", "idles"
_DIRECT, _KIND, _ID = "direct=", "kind=", "id="


@dataclass(frozen=True, slots=True)
class DirectColumns:
    """The columns of the source that the reader of a task passes on, if its operator receives the records directly.

    Args:
        to_operator: those of the records.
        to_spark: those of the rows, whose other columns are null.
    """

    to_operator: frozenset[str]
    to_spark: frozenset[str]

    def __str__(self) -> str:
        """The columns as text.

        >>> str(DirectColumns(frozenset(("offset", "key")), frozenset(("timestamp",))))
        'key,offset/timestamp'
        """
        return "/".join(",".join(sorted(it)) for it in (self.to_operator, self.to_spark))

    @classmethod
    def parse(cls, text: str) -> DirectColumns:
        """Parses the text."""
        to_operator, to_spark = (frozenset(filter(None, it.split(","))) for it in text.split("/"))
        return cls(to_operator, to_spark)


@dataclass(frozen=True, slots=True)
class StageName:
    """The name of an operator in the stage that reads.

    Args:
        operator: its name in the query.
        topics: the topics that it joins; ``None`` if it is no join.
        flushes: whether it emits what is still open at the end of a bounded run. A join does not.
        has_group_time: whether it uses the watermark of the group. A join does not.
        keeps_on_reset: whether it continues with its newest state after a reset.
        is_chained: whether another operator can process its output.
        has_idle_timeout: whether its windows have an idle timeout.
        direct_columns: the columns that the reader passes on; ``None`` if Spark passes the records to it.
        kind: the kind of the operator, for the form of the program. Empty for a join.
        id: distinguishes the operator from others of the query with the same name. Empty without one.
    """

    operator: str
    topics: JoinedTopics | None = None
    flushes: bool = False
    has_group_time: bool = False
    keeps_on_reset: bool = False
    is_chained: bool = False
    has_idle_timeout: bool = False
    direct_columns: DirectColumns | None = None
    kind: str = ""
    id: str = ""

    @property
    def in_form(self) -> str:
        """The operator in the form of its program (:mod:`streamgroups.groups.program`).

        >>> StageName("minutes", kind="windows").in_form, StageName("paid", JoinedTopics("orders", "payments")).in_form
        ('windows:minutes', 'join:paid')
        """
        return f"{self.kind or 'join'}:{self.operator}"

    def __str__(self) -> str:
        """The name as text.

        >>> str(StageName("paid", JoinedTopics("orders", "payments")))
        'paid:orders:payments'
        >>> str(StageName("windows", flushes=True)), str(StageName("windows", flushes=True, has_group_time=True))
        ('windows:flushes', 'windows:flushes+group')
        """
        if self.topics is not None:
            return ":".join((self.operator, self.topics.left, self.topics.right, *([self.id] if self.id else [])))
        has = {
            _FLUSHES: self.flushes,
            _GROUP: self.has_group_time,
            _KEEPS_ON_RESET: self.keeps_on_reset,
            _CHAINED: self.is_chained,
            _IDLES: self.has_idle_timeout,
        }
        properties = [name for name, is_set in has.items() if is_set]
        properties += [f"{_KIND}{self.kind}"] if self.kind else []
        properties += [f"{_ID}{self.id}"] if self.id else []
        properties += [] if self.direct_columns is None else [f"{_DIRECT}{self.direct_columns}"]
        return ":".join((self.operator, *(["+".join(properties)] if properties else [])))

    @classmethod
    def parse(cls, text: str) -> StageName:
        """Parses a name.

        >>> name = StageName.parse("windows:flushes")
        >>> name.operator, name.flushes, name.has_group_time
        ('windows', True, False)
        """
        operator, *others = text.split(":")
        if len(others) > 1:
            return cls(operator, JoinedTopics(*others[:2]), id="".join(others[2:]))
        properties = others[0].split("+") if others else []
        direct_columns = [it.removeprefix(_DIRECT) for it in properties if it.startswith(_DIRECT)]
        kinds = [it.removeprefix(_KIND) for it in properties if it.startswith(_KIND)]
        ids = [it.removeprefix(_ID) for it in properties if it.startswith(_ID)]
        return cls(
            operator,
            flushes=_FLUSHES in properties,
            has_group_time=_GROUP in properties,
            keeps_on_reset=_KEEPS_ON_RESET in properties,
            is_chained=_CHAINED in properties,
            has_idle_timeout=_IDLES in properties,
            direct_columns=DirectColumns.parse(direct_columns[0]) if direct_columns else None,
            kind=kinds[0] if kinds else "",
            id=ids[0] if ids else "",
        )
