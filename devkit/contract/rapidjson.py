"""JSON as the real server reads and writes it: what it accepts, and how it words a refusal.

Triton reads JSON with RapidJSON: `NaN` and `Infinity` are numbers, strings may hold any bytes, and
an error names its offset in RapidJSON's words. orjson reads what is ordinary; only what it refuses
is read again here. Nothing here knows what a request looks like.

Text that is not UTF-8 comes out as `str` with surrogate escapes; `to_bytes` turns it back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

from devkit.errors import Code, InferError
from devkit.transport.dtypes import ReadableBuffer

_PREFIX = "failed to parse the request JSON buffer: "
_BLANK = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_DIGITS = re.compile(rb"[0-9]*")
_ESCAPES = {
    0x22: b'"', 0x5C: b"\\", 0x2F: b"/", 0x62: b"\b", 0x66: b"\f", 0x6E: b"\n", 0x72: b"\r",
    0x74: b"\t",
}  # fmt: skip
_MUST_ESCAPE = re.compile(rb'["\\\x00-\x1f]')
_SHORT = {b'"': b'\\"', b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n",
          b"\r": b"\\r", b"\t": b"\\t"}  # fmt: skip
_MAX_DEPTH = 256  # each level takes two frames of the interpreter's stack


def parse(text: ReadableBuffer) -> Any:
    """The value of a JSON text. Raises InferError (INTERNAL) with RapidJSON's words and offset."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass  # it may still be something RapidJSON takes
    data = bytes(text)
    # An escaped surrogate may be half a pair, which only the careful reader below judges rightly.
    if b"\\ud" not in data and b"\\uD" not in data:
        try:
            return json.loads(data.decode("utf-8", "surrogateescape"), parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    return _Reader(data).document()


def to_bytes(text: str) -> bytes:
    """The bytes a JSON string stood for; a `?` for half a surrogate pair, which stands for none."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


class _Reader:
    """Reads one text the way RapidJSON does; only used on what faster readers refuse."""

    def __init__(self, data: bytes) -> None:
        self.data = data + b"\0"  # the byte RapidJSON sees at the end of its stream
        self.at = 0
        self.depth = 0

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        offset = self.at if at is None else at
        raise InferError(f"{_PREFIX}{message} at {offset}", Code.INTERNAL)

    def blank(self) -> int:
        """Skip blanks; the byte that follows them."""
        self.at = _BLANK.match(self.data, self.at).end()  # type: ignore[union-attr]
        return self.data[self.at]

    def document(self) -> Any:
        if self.data.startswith(b"\xef\xbb\xbf"):
            self.at = 3
        if self.blank() == 0:
            self.fail("The document is empty.")
        value = self.value()
        if self.blank() != 0:
            self.fail("The document root must not be followed by other values.")
        return value

    def value(self) -> Any:
        first = self.data[self.at]
        if first == 0x22:
            return self.string()
        if first in b"{[":
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                self.fail("Invalid value.")
            value = self.object() if first == 0x7B else self.array()
            self.depth -= 1
            return value
        if first == 0x74:
            return self.word(b"true", True)
        if first == 0x66:
            return self.word(b"false", False)
        if first == 0x6E:
            return self.word(b"null", None)
        return self.number()

    def word(self, word: bytes, value: Any) -> Any:
        for byte in word:
            if self.data[self.at] != byte:
                self.fail("Invalid value.")
            self.at += 1
        return value

    def object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.at += 1
        if self.blank() == 0x7D:
            self.at += 1
            return members
        while True:
            if self.data[self.at] != 0x22:
                self.fail("Missing a name for object member.")
            name = self.string()
            if self.blank() != 0x3A:
                self.fail("Missing a colon after a name of object member.")
            self.at += 1
            self.blank()
            members.setdefault(name, self.value())  # the first of a name counts
            following = self.blank()
            if following == 0x7D:
                self.at += 1
                return members
            if following != 0x2C:
                self.fail("Missing a comma or '}' after an object member.")
            self.at += 1
            self.blank()

    def array(self) -> list[Any]:
        items: list[Any] = []
        self.at += 1
        if self.blank() == 0x5D:
            self.at += 1
            return items
        while True:
            items.append(self.value())
            following = self.blank()
            if following == 0x5D:
                self.at += 1
                return items
            if following != 0x2C:
                self.fail("Missing a comma or ']' after an array element.")
            self.at += 1
            self.blank()

    def string(self) -> str:
        parts = []
        self.at += 1
        while True:
            plain = _PLAIN.match(self.data, self.at)
            assert plain is not None  # it matches the empty string too
            parts.append(plain.group())
            self.at = plain.end()
            byte = self.data[self.at]
            if byte == 0x22:
                self.at += 1
                return b"".join(parts).decode("utf-8", "surrogateescape")
            if byte == 0x5C:
                parts.append(self.escape())
            elif byte == 0:
                self.fail("Missing a closing quotation mark in string.")
            else:
                self.fail("Invalid escape character in string.")

    def escape(self) -> bytes:
        start = self.at
        kind = self.data[start + 1]
        self.at += 2
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind != 0x75:
            self.fail("Invalid escape character in string.", start)
        point = self.hex(start)
        if 0xD800 <= point < 0xDC00:
            if self.data[self.at : self.at + 2] != b"\\u":
                self.fail("The surrogate pair in string is invalid.", start)
            self.at += 2
            low = self.hex(start)
            if not 0xDC00 <= low < 0xE000:
                self.fail("The surrogate pair in string is invalid.", start)
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
        return chr(point).encode("utf-8", "surrogatepass")

    def hex(self, start: int) -> int:
        digits = _HEX.match(self.data, self.at)
        if digits is None:
            self.fail("Incorrect hex digit after \\u escape in string.", start)
        self.at = digits.end()
        return int(digits.group(), 16)

    def number(self) -> int | float:
        start = self.at
        if self.data[self.at] == 0x2D:
            self.at += 1
        first = self.data[self.at]
        if first == 0x4E:
            self.word(b"NaN", None)
            return math.nan
        if first == 0x49:
            self.word(b"Inf", None)
            if self.data[self.at] == 0x69:
                self.word(b"inity", None)
            return -math.inf if self.data[start] == 0x2D else math.inf
        if first == 0x30:
            self.at += 1
        elif not self.digits():
            self.fail("Invalid value.")
        whole = True
        if self.data[self.at] == 0x2E:
            whole = False
            self.at += 1
            if not self.digits():
                self.fail("Miss fraction part in number.")
        if self.data[self.at] in b"eE":
            whole = False
            self.at += 1
            if self.data[self.at] in b"+-":
                self.at += 1
            if not self.digits():
                self.fail("Miss exponent in number.")
        text = self.data[start : self.at]
        value = float(text)
        if math.isinf(value):
            self.fail("Number too big to be stored in double.", start)
        if whole and -(1 << 63) <= (integer := int(text)) < 1 << 64:
            return integer
        return value

    def digits(self) -> bool:
        end = _DIGITS.match(self.data, self.at).end()  # type: ignore[union-attr]
        found = end > self.at
        self.at = end
        return found


# -- typed access, in the words of the server's JSON helpers -------------------------------------


def wrong_type(kind: str, wanted: str, about: str = "") -> InferError:
    """`attempt to access JSON non-KIND as WANTED`, after `about` where a field is named."""
    return InferError(f"{about}attempt to access JSON non-{kind} as {wanted}", Code.INTERNAL)


def missing(name: str) -> InferError:
    """The refusal of an object that lacks the member `name`."""
    return InferError(
        f"Unable to parse '{name}': attempt to access non-existing object member '{name}'",
        Code.INTERNAL,
    )


def string(value: Any, about: str = "") -> str:
    """`value` as a string."""
    if type(value) is not str:
        raise wrong_type("string", "string", about)
    return value


def boolean(value: Any, about: str = "") -> bool:
    """`value` as a boolean; 0 and 1 are none."""
    if type(value) is not bool:
        raise wrong_type("boolean", "boolean", about)
    return value


def unsigned(value: Any, about: str = "") -> int:
    """`value` as a non-negative integer of 64 bits."""
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise wrong_type("unsigned-integer", "unsigned-integer", about)
    return value


def array(value: Any, about: str = "") -> list[Any]:
    """`value` as an array."""
    if type(value) is not list:
        raise wrong_type("array", "array", about)
    return value


# -- writing ---------------------------------------------------------------------------------------


def quote(text: bytes) -> bytes:
    """A JSON string of arbitrary bytes; what is not ASCII stays as it is."""
    if _MUST_ESCAPE.search(text) is None:
        return b'"' + text + b'"'
    return b'"' + _MUST_ESCAPE.sub(_escape, text) + b'"'


def _escape(match: re.Match[bytes]) -> bytes:
    byte = match.group()
    return _SHORT.get(byte) or b"\\u%04X" % byte[0]


def _unusual(value: float) -> bool:
    """Whether orjson would write `value` in another form than RapidJSON."""
    return value != 0 and not 1e-4 <= abs(value) < 1e15


def number(value: float) -> bytes:
    """A double as RapidJSON writes it: shortest digits, a point, exponents past 21 digits."""
    if value != value:
        return b"NaN"
    if value in (math.inf, -math.inf):
        return b"Infinity" if value > 0 else b"-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        text = "0.0"
    elif len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits)) + ".0"
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        rest = "." + digits[1:] if len(digits) > 1 else ""
        text = f"{digits[0]}{rest}e{point - 1}"
    return (sign + text).encode()


def numbers(values: Sequence[float]) -> bytes:
    """A JSON array of doubles as RapidJSON writes it."""
    odd = [index for index, value in enumerate(values) if _unusual(value)]
    text = orjson.dumps(values)
    if not odd:
        return text
    parts = text[1:-1].split(b",")
    for index in odd:
        parts[index] = number(values[index])
    return b"[" + b",".join(parts) + b"]"
