"""Random JSON values: numbers and strings in all notations, wrong types, repeated names, and damaged text.

Used by ``test_json_agrees_with_python``. Source: RFC 8259.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

_NUMBERS = [
    "0",
    "-0",
    "0.0",
    "-0.0",
    "1",
    "127",
    "128",
    "200",
    "-128",
    "-129",
    "1.0",
    "1.10",
    "-1.50E+3",
    "1e5",
    "1E400",
    "1e-400",
    "1e38",
    "0.1",
    "3.4028235e38",
    "3.4028236e38",
]
_NUMBERS += [
    "32767",
    "32768",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
]
_NUMBERS += [
    "123456789012345678901234567890.10",
    "16777217",
    "99999999.994",
    "99999999.995",
    "0.005",
    "-0.005",
    "1e9999",
    "0e999999",
]
_NUMBERS += [
    "9223372036854",
    "9223372036855",
    "-9223372036855",
    "1772366400000000",
    "1e99999",
    "5E-324",
    "1.17549435e-38",
    "7e-46",
]
_STRINGS = [
    "",
    "JFK",
    '"',
    "\\",
    '\\"',
    "1.10",
    "0",
    "-0",
    ":1.5,",
    "[1e5]",
    '{"a":1.10}',
    "é",
    "😀",
    "\n",
    "null",
    "{",
]
_STRINGS += ["3e12345", "NaN", "Infinity", '"Infinity"', "\\ud800", "\x00", "/", "?", "\u2028", "true", "1E5", "-1.0"]
_TIMES = ['"2026-03-01T12:00:00Z"', '"1969-12-31T23:59:59Z"']
_NAMES = ["s", "t", "i", "h", "d", "f", "n", "l", "m", "x", "c", "at", "lc", "ma", "md", "v", "g", "b", "deep"]
_DAMAGE = [
    "]",
    "}",
    "{",
    ",",
    '"',
    "\\",
    "'",
    "\x01",
    ":",
    "]}",
    "1",
    "-",
    ".",
    "e",
    "+",
    "\\u",
    "\\ud800",
    "NaN",
    "/*",
    "\x0b",
]
_TRAILING = ["{}", "}", "]", ",", " x", "null", "\x00", '{"s":1}', "\\ud83d", '"']


class JsonChance(random.Random):
    """Random values, by a seed."""

    def value(self) -> bytes:
        """Returns the bytes of one value."""
        text = self.space() + self.object(_NAMES, self.field, 4) + self.space()
        if self.random() < 0.12:
            at = self.randrange(len(text) + 1)
            text = text[:at] + self.choice(_DAMAGE) + text[at + self.randrange(2) :]
        if self.random() < 0.03:
            text += self.choice(_TRAILING)
        value = text.encode()
        if self.random() < 0.01:
            at = self.randrange(len(value) + 1)
            value = value[:at] + self.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]) + value[at:]
        return value

    def field(self, name: str) -> str:
        if self.random() < 0.05:
            return self.any(2)
        match name:
            case "t" | "h" | "g" | "i":
                return self.choice(["1", "127", "-128", "0", "-0", "null", str(self.randrange(-200, 40_000))])
            case "d" | "f":
                return self.number()
            case "c":
                return self.choice(["1.005", "null", self.number(), self.decimal(), self.decimal(), self.string("x")])
            case "at":
                return self.time()
            case "b":
                return self.choice(["true", "false", "null"])
            case "v":
                return self.choice(['""', '"YQ=="', '"YWJj"', "null", '"1e12"'])
            case "n":
                return self.object(["s", "c", "at", "d"], self.field, 2)
            case "l":
                return self.array(self.any, 1)
            case "m":
                return self.object(["k", "s", "3e123456", "\\"], lambda _: self.any(1), 3)
            case "x":
                return self.array(lambda _: self.choice(["null", self.object(["s", "t"], self.field, 2)]), 1)
            case "lc":
                return self.array(lambda _: self.choice(["1", "99999.4", "null", "-0.5", self.decimal()]), 1)
            case "ma":
                return self.object(["k", "3e123456"], lambda _: self.time(), 2)
            case "md":
                return self.object(["k", "3e123456", "1"], lambda _: self.decimal(), 2)
            case "deep":
                return self.object(["k"], lambda _: self.array(lambda _: self.object(["f"], self.field, 2), 1), 1)
        return self.any(2)

    def any(self, depth: int) -> str:
        kind = self.randrange(12 if depth else 10)
        if kind < 5:
            return self.number()
        if kind < 9:
            return self.string(self.text())
        if kind == 9:
            return self.choice(["true", "false", "null"])
        if kind == 10:
            return self.array(self.any, depth - 1)
        return self.object(["s", "t", "d", "k", "a b", '"'], lambda _: self.any(depth - 1), 3)

    def array(self, item: Callable[[int], str], depth: int) -> str:
        items = (self.space() + item(depth) + self.space() for _ in range(self.randrange(4)))
        return f"[{','.join(items)}]" if self.random() < 0.9 else f"[{self.space()}]"

    def object(self, names: list[str], field: Callable[[str], str], most: int) -> str:
        chosen = [self.choice(names) for _ in range(self.randrange(most + 1))]
        if self.random() < 0.9:
            chosen = list(dict.fromkeys(chosen))
        fields = (f"{self.space()}{self.string(it)}{self.space()}:{self.space()}{field(it)}" for it in chosen)
        return f"{{{','.join(fields)}{self.space()}}}"

    def number(self) -> str:
        if self.random() < 0.5:
            return self.choice(_NUMBERS)
        digits = self.choice([1, 2, 5, 9, 17, 25, 45])
        text = self.choice(["", "-"]) + self.choice(["0", str(self.randrange(1, 10**digits))])
        if self.random() < 0.5:
            text += "." + "".join(self.choices("0159", k=self.randrange(1, 20)))
        if self.random() < 0.3:
            text += self.choice("eE") + self.choice(["", "+", "-"]) + str(self.choice([0, 1, 7, 30, 37, 38, 300, 310]))
        return text

    def decimal(self) -> str:
        """A number or a string in all notations of Java, with short and long exponents."""
        exponent = self.choice(["", "e0", "E1", "e-2", "e+00003", "E-000000", "e99999", "e-99999", "E999999999"])
        if self.random() < 0.3:
            return self.choice(["0", "1", "-7.005", "0.000", "12345.6"]) + exponent
        text = self.choice(["0", "1", "12,345.6", "-7.005", "+.5", "3.", "0.000", "000", "1,2,3", "x1", "1x", "-", ""])
        text += exponent + self.choice(["", "", "", ",", "9" * 30, ".", "0"])
        if self.random() < 0.4:
            zero = self.choice([0x660, 0x966, 0xABF0, 0xFF10])
            text = "".join(chr(zero + int(it)) if it in "0123456789" and self.random() < 0.5 else it for it in text)
        if self.random() < 0.5:
            return f'"{text}"'
        escaped = (f"\\u{ord(it):04x}" if self.random() < 0.4 else it for it in text)
        return f'"{"".join(escaped)}"'

    def time(self) -> str:
        return self.choice(
            [*_TIMES, "null", "0", "-1", "1772366400", "9223372036854", str(self.randrange(2**43, 2**65))]
        )

    def text(self) -> str:
        if self.random() < 0.6:
            return self.choice(_STRINGS)
        return "".join(chr(self.choice([*range(32, 127), 0xE9, 0x4E00, 0x1F600])) for _ in range(self.randrange(12)))

    def string(self, text: str) -> str:
        """A string with some characters as escape sequences, and rarely with half of a surrogate pair."""
        found = [self.escaped(it) for it in text]
        if self.random() < 0.004:
            found.insert(self.randrange(len(found) + 1), self.choice(["\\ud83d", "\\uDE00", "\\uDE00\\uD83D"]))
        return f'"{"".join(found)}"'

    def escaped(self, character: str) -> str:
        if self.random() < 0.05:
            units = character.encode("utf-16-be").hex()
            return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        if character == "/" and self.random() < 0.5:
            return "\\/"
        return json.dumps(character, ensure_ascii=self.random() < 0.2)[1:-1]

    def space(self) -> str:
        return "" if self.random() < 0.85 else self.choice([" ", "\n", "\t", "\r", " \n "])
