"""Checks that texts use the words of Kafka, Spark, Flink and Beam. ``make lint`` runs it.

It reads the prose of ``.rst`` files, and the comments, strings and names of ``.py`` files. Code is not prose: literal blocks,
text between double backquotes, and strings without a space. A name is checked where it is defined: a module, class,
function, argument, variable or attribute. ``docs/glossary.rst`` defines the terms to use instead.

To add a file or directory to the check, add its path to ``CHECKED``. ``python -m unit_tests.words PATH ...`` checks
other paths.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: The files and directories to check.
CHECKED = (
    "CHANGELOG.rst",
    "README.rst",
    "benchmarks",
    "component_tests",
    "connectors",
    "demo",
    "docs",
    "integration_tests",
    "streamgroups",
    "unit_tests",
)
#: Files that quote the words to avoid, or code.
EXCLUDED = ("unit_tests/words.py", "unit_tests/test_words.py", "unit_tests/mutants/lists")


@dataclass(frozen=True)
class Word:
    """A word to avoid.

    Args:
        pattern: a regular expression for whole words. A space stands for any white space, also for the end of a line.
        instead: words to write instead.
        unless: a regular expression. A match at the same place is permitted.
    """

    pattern: str
    instead: str
    unless: str = ""


WORDS = (
    # Verbs
    Word("tells?|told|telling", "report, return, indicate, distinguish; of windows: emit"),
    Word("says?|said|saying", "return, report, state, contain"),
    Word("asks?|asked|asking", "request, query, call, poll"),
    Word(r"look(s|ed|ing)?", "poll, read, inspect, check", unless=r"look(s|ed|ing)?[ -]up"),
    Word("(goes|go|going|gone|went) on", "continue, resume"),
    Word(r"stands?|stood", "is at, equals, is", unless=r"stands? for|stood for"),
    Word("refus(e|es|ed|ing|als?)", "reject, rejected", unless="connection( failed:)? refused"),
    Word("hears?|heard", "receive"),
    Word("believed?|believes", "accept, use"),
    Word("obey(s|ed|ing)?", "apply"),
    Word("asserts? (time|nothing|no time)|time (that is )?asserted", "emit a watermark"),
    Word("(gives?|gave|given|giving) (it |them )?back", "revoke, release, return"),
    Word("lets? (it |them )?go", "release"),
    Word("ask(s|ed)? back", "revoke"),
    Word("struck|strikes?", "inject a fault, kill"),
    Word(
        r"mov(es?|ed|ing) (an?|the|its|this|that|live|running) ((live|running|whole|wrong) )?(groups?|quer(y|ies))",
        "reset",
    ),
    Word("refin(es?|ed|ements?)", "update"),
    Word("withdrawn|withdraws?", "retract, retracted"),
    Word("shuts? out|shut out", "fence"),
    Word("told apart|tells? apart", "distinguish"),
    Word("knows?|knew", "have, store, detect"),
    Word("wants?|wanted", "require, need"),
    Word("learn(s|ed|t|ing)?", "receive, read, measure, detect"),
    Word("(gives?|gave|given|giving) (it |them )?up", "release, stop, fail"),
    # Actors and clauses
    Word("nobody|somebody|anybody|whoever|nobody's|somebody's", "name the actor: no member, another client"),
    Word("someone|everyone|anyone|everybody", "name the actor: another client, each account"),
    Word("whom", "name the actor"),
    Word("so many|so long", "the number, the time: n, timeout", unless="so long as"),
    Word("anew", "again; of a topic: recreated"),
    Word("made again", "recreated"),
    Word("(is|are|was|were|be) (?-i:none)", "does not exist, is missing"),
    Word("that there (is|are|was|were) (not|none)", "that exists, that does not exist"),
    Word("of which", "a relative clause, or a new sentence"),
    Word("(?-i:What) (an?|the|its?|this|they|comes?|becomes?|was|of)", "a noun instead of a clause"),
    Word("what (becomes?|became|comes?|came) of", "result, how it is handled"),
    Word("for ever", "permanently, indefinitely"),
    Word("in peace", "without errors"),
    Word("in good order", "in an orderly way; leaves the group"),
    Word("(rejected|refused) by name", "rejected; the error names it"),
    # Nouns
    Word("(the|an?|no|this|its|each|every) boards?|boards", "metadata groups"),
    Word("(?-i:[Nn]otes?|noted)", "metadata entry; store, record", unless='release notes?|note that|"notes?"'),
    Word("strangers?", "members of other clients"),
    Word("tenures?", "ownership epoch"),
    Word("heirs?", "the next owner"),
    Word("claims?", "consumer group metadata", unless="claims? of (the|an?) (JWT|token)|JWT claims?|token claims?"),
    Word("quiet", "batch: no-data; source: idle"),
    Word("unread", "available, not read yet, lag"),
    Word("patience", "timeout"),
    Word("sightings?", "observation"),
    Word("census|desk", "the thing itself: deletion of unused groups, group operations"),
    Word("hand-overs?", "handover"),
    Word("trouble", "error"),
    Word("oldest (records?|messages?|offsets?)", "earliest record, earliest offset"),
    Word("surplus", "idle, standby"),
    Word("fewest|patient", "min, timeout"),
)


#: Further words to avoid in names. In prose they have a use.
NAMES = (
    Word("ours|theirs", "own, or what it is: partition, from_confluent"),
    Word("^_?(keeps|keeping)$", "is_kept, retention, registry"),
    Word("^_?(gives?|giving|book)$", "write, send, assign; requests"),
)
#: Words of prose that are terms in names: the claims of a token, and ``QueryGivenUp``.
PERMITTED_NAMES = frozenset({"claims?", "(gives?|gave|given|giving) (it |them )?up"})


def _whole_words(pattern: str) -> re.Pattern[str]:
    # Each pattern begins with a letter. The second condition avoids an attempt of each pattern at each space.
    return re.compile(rf"(?<![\w.`])(?=\w)(?:{pattern})(?![\w`]|\.\w)".replace(" ", r"\s+"), re.IGNORECASE)


def _compiled(words: Sequence[Word]) -> list[tuple[Word, re.Pattern[str], re.Pattern[str] | None]]:
    return [
        (
            word,
            _whole_words(word.pattern),
            re.compile(word.unless.replace(" ", r"\s+"), re.IGNORECASE) if word.unless else None,
        )
        for word in words
    ]


_PATTERNS = _compiled(WORDS)
_PATTERNS_OF_NAMES = _compiled((*(word for word in WORDS if word.pattern not in PERMITTED_NAMES), *NAMES))
#: Any of the words. Most texts contain none, and one search is much faster than one for each word.
_ANY = _whole_words("|".join(word.pattern for word in WORDS))
_LITERAL = re.compile(r"``[^`]+``|(?<!`)`[^`<]+`__?|<[^>\n]+>|:\w+:`[^`]+`")
_CODE_DIRECTIVE = re.compile(r"\.\. (code|code-block|include|image|raw|_)\b")


_TEST_NAME = re.compile(r"test_\w+_\w+")
_ARGUMENT = re.compile(r"^[ ]+\w+(?:, \w+)*:(?= )", re.MULTILINE)


_IDENTIFIER = re.compile(r"[^\W\d]\w*")


def _blank(text: str) -> str:
    return re.sub(r"\S", " ", text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def prose(text: str) -> str:
    """The text with its code replaced by spaces, so that lines and columns stay.

    >>> prose("Set ``told`` to 5::\\n\\n    told = 5\\n\\nIt works.").split()
    ['Set', 'to', '5::', 'It', 'works.']
    """
    lines: list[str] = []
    literal: int | None = None
    in_shell = False
    for line in text.split("\n"):
        if literal is not None and line.strip() and _indent(line) <= literal:
            literal = None
        in_shell = bool(line.strip()) and (in_shell or line.lstrip().startswith(">>>"))
        code = literal is not None or in_shell
        if not code and _CODE_DIRECTIVE.match(line.lstrip()):
            code, literal = True, _indent(line)
        elif not code and line.rstrip().endswith("::"):
            literal = _indent(line)
        lines.append(_blank(line) if code else line)
    return _LITERAL.sub(lambda found: _blank(found.group()), "\n".join(lines))


def _without_fields(body: str) -> str:
    """The text of an f-string. Fields can be nested, so the innermost are blanked first.

    >>> _without_fields("a {', '.join(f'{x} b' for x in y)} c").split()
    ['a', 'c']
    """
    field = re.compile(r"\{[^{}]*\}")
    while field.search(body):
        body = field.sub(lambda found: _blank(found.group()), body)
    return body


def texts_of_python(source: str) -> str:
    """Comments, strings and names of tests of a Python source, at their lines and columns. Strings without a space are
    identifiers.

    >>> texts_of_python("told = 'told'  # and a comment").split()
    ['#', 'and', 'a', 'comment']
    >>> texts_of_python("def test_it_is_told(told): ...").split()
    ['test', 'it', 'is', 'told']
    """
    lines = source.split("\n")
    shown = [[" "] * len(line) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind not in {"COMMENT", "STRING", "FSTRING_MIDDLE"} and not _TEST_NAME.fullmatch(token.string):
            continue
        text = token.string
        if kind == "NAME":
            text = text.replace("_", " ")
        elif kind != "COMMENT":
            if not re.search(r"\s", text.strip("\"'")):
                continue
            if kind == "STRING":
                opening = re.match(r"[a-zA-Z]*(\"\"\"|'''|\"|')", text)
                assert opening
                length = len(opening.group())
                body = text[length : -len(opening.group(1))]
                if "f" in opening.group()[:-1].lower():
                    body = _without_fields(body)
                # ``Args:`` begins its lines with names of code.
                body = _ARGUMENT.sub(lambda found: _blank(found.group()), body)
                text = " " * length + body
        (row, column), text = token.start, prose(text)
        for number, line in enumerate(text.split("\n")):
            place = shown[row - 1 + number]
            begin = column if number == 0 else 0
            place[begin : begin + len(line)] = line[: len(place) - begin]
    return "\n".join("".join(line) for line in shown)


def names_of_python(source: str) -> list[tuple[int, str]]:
    """The line and the name of each definition of a Python source: of classes, functions, arguments, variables and
    attributes.

    >>> names_of_python("def count(ours):\\n    self.told, rest = ours.tell()")
    [(1, 'count'), (1, 'ours'), (2, 'rest'), (2, 'told')]
    """
    found: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            found.add((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add((node.lineno, node.attr))
        elif isinstance(node, ast.alias) and node.asname:
            found.add((node.lineno, node.asname))
    return sorted(found)


def words_of_name(name: str) -> str:
    """The words of a name.

    >>> words_of_name("_LAST_TOLD_MS"), words_of_name("ToldByHTTPServer")
    ('LAST TOLD MS', 'Told By HTTP Server')
    """
    return " ".join(re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+", name))


def findings_in_names(names: Iterable[tuple[int, str]], file: str) -> list[str]:
    """One line for each word to avoid in the names of :func:`names_of_python`.

    >>> findings_in_names([(7, "_told_ms"), (8, "look_up"), (9, "ours")], "a.py")
    ["a.py:7: name '_told_ms': write report, return, indicate, distinguish; of windows: emit", \
"a.py:9: name 'ours': write own, or what it is: partition, from_confluent"]
    """
    return [
        f"{file}:{line}: name '{name}': write {instead}"
        for line, name in names
        if (instead := _instead_of_name(name)) is not None
    ]


@cache
def _instead_of_name(name: str) -> str | None:
    """What to write instead of a name; ``None`` if its words are permitted."""
    if _TEST_NAME.fullmatch(name):  # prose, which texts_of_python returns
        return None
    text = words_of_name(name)
    for word, pattern, unless in _PATTERNS_OF_NAMES:
        if pattern.search(unless.sub("", text) if unless else text):
            return word.instead
    return None


def findings(text: str, name: str) -> list[str]:
    """One line for each word to avoid in a text that :func:`prose` or :func:`texts_of_python` has returned.

    >>> findings("The board\\ntells it.", "a.rst")
    ["a.rst:1: 'The board': write metadata groups", "a.rst:2: 'tells': write report, return, indicate, distinguish; of windows: emit"]
    """
    if not _ANY.search(text):
        return []
    found = []
    for word, pattern, unless in _PATTERNS:
        permitted = [match.span() for match in unless.finditer(text)] if unless else []
        for match in pattern.finditer(text):
            if any(begin <= match.start() < end for begin, end in permitted):
                continue
            line = text.count("\n", 0, match.start()) + 1
            shown = " ".join(match.group().replace("#", " ").split())
            found.append((line, f"{name}:{line}: '{shown}': write {word.instead}"))
    return [message for _, message in sorted(found, key=lambda item: item[0])]


def check(path: Path, name: str) -> list[str]:
    """The findings of one file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return findings(prose(text), name)
    # Parsing takes most of the time, and few files contain such a word at all.
    in_text = findings(texts_of_python(text), name) if _ANY.search(text.replace("_", " ")) else []
    in_names = any(_instead_of_name(it) for it in set(_IDENTIFIER.findall(text)))
    names = [(1, path.stem), *(names_of_python(text) if in_names else [])]
    return [*in_text, *findings_in_names(names, name)]


def checked_files(names: Sequence[str] = CHECKED) -> list[Path]:
    """All ``.rst`` and ``.py`` files of these paths, which begin at the root of the project."""
    files: set[Path] = set()
    for name in names:
        path = ROOT / name
        if not path.exists():
            raise SystemExit(f"{name} does not exist: correct the path, or CHECKED in unit_tests/words.py.")
        files.update([path] if path.is_file() else (p for p in path.rglob("*") if p.suffix in {".rst", ".py"}))
    excluded = [ROOT / name for name in EXCLUDED]
    return sorted(path for path in files if not any(path.is_relative_to(other) for other in excluded))


if __name__ == "__main__":
    wrong = [
        line for path in checked_files(sys.argv[1:] or CHECKED) for line in check(path, str(path.relative_to(ROOT)))
    ]
    sys.exit("\n".join(wrong) or None)
