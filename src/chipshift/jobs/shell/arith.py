"""Shell arithmetic, ``$(( a * (b + 1) ))``: integers, C's precedence, bounded to 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+#[0-9a-zA-Z]+|\d+)|\$?\{?([A-Za-z_]\w*)\}?|"
    r"(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!~&|^?:,=]))"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
LIMIT = 2**63


class Unsure(Exception):
    """The expression cannot be evaluated; its text names what is missing."""


def evaluate(text: str, look_up: Callable[[str], int]) -> int:
    """Value of an expression.

    Args:
        look_up: value of a variable; raises Unsure when it is not known.

    Raises:
        Unsure: not an expression, a division by zero, or a variable that is not known.
    """
    tokens: list[str] = []
    at = 0
    text = text.strip().strip('"')
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unsure(text)
        tokens.append(match.group(1) or match.group(2) or match.group(3))
        at = match.end()
        while at < len(text) and text[at].isspace():
            at += 1
        if len(tokens) > 500:
            raise Unsure(text[:40])
    if not tokens:
        return 0
    parser = _Parser(tokens, look_up)
    value = parser.ternary()
    if parser.at != len(tokens):
        raise Unsure(text)
    return value


class _Parser:
    def __init__(self, tokens: list[str], look_up: Callable[[str], int]) -> None:
        self.tokens, self.look_up, self.at, self.depth = tokens, look_up, 0, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *choices: str) -> str:
        if self.peek() in choices and self.peek():
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def ternary(self) -> int:
        self.depth += 1
        if self.depth > 50:
            raise Unsure("an expression nested too deep")
        value = self.binary(0)
        if self.take("?"):
            yes = self.ternary()
            if not self.take(":"):
                raise Unsure("a ? without :")
            no = self.ternary()
            value = yes if value else no
        self.depth -= 1
        return value

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.power()
        value = self.binary(level + 1)
        while op := self.take(*_LEVELS[level]):
            value = _apply(op, value, self.binary(level + 1))
        return value

    def power(self) -> int:
        value = self.unary()
        if self.take("**"):
            exponent = self.power()
            if not 0 <= exponent <= 62 or abs(value) > 2**31:
                raise Unsure("a power out of range")
            value = _apply("**", value, exponent)
        return value

    def unary(self) -> int:
        op = self.take("-", "+", "!", "~")
        if op:
            self.depth += 1
            if self.depth > 50:
                raise Unsure("an expression nested too deep")
            value = self.unary()
            self.depth -= 1
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[op]
        if self.take("("):
            value = self.ternary()
            if not self.take(")"):
                raise Unsure("a bracket is not closed")
            return value
        token = self.peek()
        self.at += 1
        if based := re.fullmatch(r"(\d{1,2})#([0-9a-zA-Z]{1,16})", token):
            return _based(int(based.group(1)), based.group(2))
        if re.fullmatch(r"\d+|0[xX][0-9a-fA-F]+", token) and len(token) <= 20:
            octal = len(token) > 1 and token[0] == "0" and set(token) <= set("01234567")
            base = 16 if token[:2] in ("0x", "0X") else 8 if octal else 10
            return int(token, base)
        if re.fullmatch(r"[A-Za-z_]\w*", token):
            return self.look_up(token)
        raise Unsure(token or "an expression")


def _based(base: int, digits: str) -> int:
    """``10#08``: digits of a base from 2 to 36."""
    try:
        return int(digits, base) if 2 <= base <= 36 else 1 // 0
    except (ValueError, ZeroDivisionError):
        raise Unsure(f"{base}#{digits}") from None


def _apply(op: str, a: int, b: int) -> int:
    if op in ("/", "%") and b == 0:
        raise Unsure("a division by zero")
    if op in ("<<", ">>") and not 0 <= b <= 62:
        raise Unsure("a shift out of range")
    results: dict[str, Callable[[], int]] = {
        "||": lambda: int(bool(a) or bool(b)),
        "&&": lambda: int(bool(a) and bool(b)),
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "&": lambda: a & b,
        "==": lambda: int(a == b),
        "!=": lambda: int(a != b),
        "<=": lambda: int(a <= b),
        ">=": lambda: int(a >= b),
        "<": lambda: int(a < b),
        ">": lambda: int(a > b),
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "/": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "%": lambda: abs(a) % abs(b) * (-1 if a < 0 else 1),
        "**": lambda: a**b,
    }
    value = results[op]()
    if abs(value) >= LIMIT:
        raise Unsure("a number above 64 bits")
    return value
