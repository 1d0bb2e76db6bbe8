"""One mutant: a fault as data, and how it gets into the code.

Used by the lists and by ``runner``. A mutant replaces a snippet that occurs exactly once in its file. The snippet is short, so that it survives
changes around it; a snippet that is gone, or is there twice, is an error, for its mutant would test nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class SnippetNotFound(Exception):
    """The snippet of a mutant is not in its file exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault.

    Args:
        id: its name in the list and in results; a letter for its area, and a number.
        area: what it belongs to.
        file: where it is, from the root of the project.
        old: a snippet that occurs exactly once in the file.
        new: what replaces it.
        breaks: what goes wrong with it.
        equivalent: why no test can notice it; empty if one can. Such a mutant does not count.
    """

    id: str
    area: str
    file: str
    old: str
    new: str
    breaks: str
    equivalent: str = ""

    @property
    def is_native(self) -> bool:
        """Whether the C extension must be built with it."""
        return self.file.endswith((".c", ".h"))

    def applied_to(self, text: str) -> str:
        """The text of the file with the fault.

        Raises:
            SnippetNotFound: if the snippet does not occur exactly once.

        >>> Mutant("A1", "example", "example.py", "a < b", "a <= b", "the bound").applied_to("if a < b:")
        'if a <= b:'
        """
        if (count := text.count(self.old)) != 1:
            raise SnippetNotFound(
                f"Mutant {self.id}: its snippet occurs {count} times in {self.file}, not once: {self.old!r}. "
                "The code has changed: write the mutant for it as it is now."
            )
        return text.replace(self.old, self.new)

    def line_in(self, text: str) -> int:
        """The line of the file where the fault begins, from 1."""
        return text.count("\n", 0, text.index(self.old)) + 1


def check(mutants: tuple[Mutant, ...], root: Path) -> list[str]:
    """What is wrong with a list: ids that occur twice, files that are missing, snippets that are not found once.

    Args:
        mutants: the list.
        root: of the project.
    """
    wrong = [
        f"Mutant {m.id} is in the list twice." for i, m in enumerate(mutants) if m.id in {n.id for n in mutants[:i]}
    ]
    for mutant in mutants:
        try:
            mutant.applied_to((root / mutant.file).read_text(encoding="utf-8"))
        except (OSError, SnippetNotFound) as e:
            wrong.append(str(e))
    return wrong
