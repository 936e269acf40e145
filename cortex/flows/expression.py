"""The expressions of flows: `${{ steps.fetch.result.json.total > 100 and not inputs.dry }}`.

A language of its own over JSON values: literals, paths, comparisons, `and`, `or`, `not`, and the
functions below. It reaches no attribute, import, file or environment; there is no assignment, loop
or arithmetic. An expression has at most 2,000 characters and nests at most 32 levels deep, and
what it makes is bounded, so that evaluating one takes milliseconds.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NoReturn, TypeAlias

import attrs

from cortex.flows.functions import (
    FUNCTIONS,
    ExpressionError,
    Json,
    contains,
    equal,
    is_number,
    is_whole,
    kind,
    shown,
)

CHARS_MAX: Final = 2_000
DEPTH_MAX: Final = 32
TERMS_MAX: Final = 100

Scope: TypeAlias = Mapping[str, Json]


@attrs.frozen
class Literal:
    """A value as it is written."""

    value: Json


@attrs.frozen
class Path:
    """A root such as `steps`, and the keys that follow it."""

    root: str
    keys: "tuple[Node, ...]"

    @property
    def first(self) -> str | None:
        """The first key if it is written out: the step of `steps.fetch.result`."""
        key = self.keys[0] if self.keys else None
        return key.value if isinstance(key, Literal) and isinstance(key.value, str) else None


@attrs.frozen
class Call:
    """A call of one of the functions."""

    function: str
    arguments: "tuple[Node, ...]"


@attrs.frozen
class Not:
    """The negation of a condition."""

    operand: "Node"


@attrs.frozen
class Binary:
    """A comparison, or `and` or `or`."""

    operator: str
    left: "Node"
    right: "Node"


Node: TypeAlias = Literal | Path | Call | Not | Binary


# --- reading


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?![\w.]))
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,|\.)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_CONSTANTS: Final[Mapping[str, Json]] = {"true": True, "false": False, "null": None}
_WORDS: Final = frozenset({"and", "or", "not", "in", *_CONSTANTS})
_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def parse(text: str) -> Node:
    """Read an expression. Raises `ExpressionError` with what is wrong and where."""
    if len(text) > CHARS_MAX:
        raise ExpressionError(f"an expression of {len(text):,} characters, at most {CHARS_MAX:,}")
    return _Parser(text).whole()


class _Parser:
    """Reads by descent, no deeper than `DEPTH_MAX`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        if not self._tokens:
            raise ExpressionError("an empty expression")
        node = self._either()
        if self._at < len(self._tokens):
            self._refuse()
        return node

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"an expression nested deeper than {DEPTH_MAX} levels")
        node = self._chain("or", partial(self._chain, "and", self._negation))
        self._depth -= 1
        return node

    def _chain(self, word: str, part: Callable[[], Node]) -> Node:
        node, count = part(), 1
        while self._takes(word):
            node, count = Binary(word, node, part()), count + 1
            if count > TERMS_MAX:
                raise ExpressionError(f"an expression with more than {TERMS_MAX} times {word!r}")
        return node

    def _negation(self) -> Node:
        count = 0
        while self._takes("not"):
            count += 1
        node = self._comparison()
        return node if not count else Not(node) if count % 2 else Not(Not(node))

    def _comparison(self) -> Node:
        left = self._operand()
        sort, text = self._peek()
        if sort in ("sign", "name") and text in _COMPARISONS:
            self._at += 1
            return Binary(text, left, self._operand())
        return left

    def _operand(self) -> Node:
        sort, text = self._peek()
        if sort == "name" and text not in _WORDS:
            self._at += 1
            return self._call(text) if self._takes("(") else self._path(text)
        if self._takes("("):
            node = self._either()
            self._require(")")
            return node
        return self._literal(sort, text)

    def _literal(self, sort: str, text: str) -> Node:
        if sort == "number":
            value: Json = float(text) if "." in text else int(text)
        elif sort == "text":
            value = _ESCAPED.sub(_unescaped, text[1:-1])
        elif sort == "name" and text in _CONSTANTS:
            value = _CONSTANTS[text]
        else:
            self._refuse()
        self._at += 1
        return Literal(value)

    def _call(self, function: str) -> Node:
        if function not in FUNCTIONS:
            known = ", ".join(sorted(FUNCTIONS))
            raise ExpressionError(f"unknown function {function!r}", hint=f"there are {known}")
        arguments: list[Node] = []
        while not self._takes(")"):
            if arguments:
                self._require(",")
            arguments.append(self._either())
        low, high = FUNCTIONS[function].counts
        if not low <= len(arguments) <= high:
            takes = f"{low}" if low == high else f"{low} to {high}"
            raise ExpressionError(f"{function}() takes {takes} arguments, not {len(arguments)}")
        return Call(function, tuple(arguments))

    def _path(self, root: str) -> Node:
        keys: list[Node] = []
        while True:
            if self._takes("."):
                sort, text = self._peek()
                if sort != "name":
                    self._refuse()
                self._at += 1
                keys.append(Literal(text))
            elif self._takes("["):
                keys.append(self._either())
                self._require("]")
            else:
                return Path(root, tuple(keys))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _takes(self, text: str) -> bool:
        is_there = self._peek() in (("sign", text), ("name", text))
        self._at += is_there
        return is_there

    def _require(self, text: str) -> None:
        if not self._takes(text):
            self._refuse(f", expected {text!r}")

    def _refuse(self, expected: str = "") -> NoReturn:
        sort, text = self._peek()
        what = "ends too early" if sort == "end" else f"has {text!r:.40} at the wrong place"
        raise ExpressionError(f"expression {self._text!r:.80} {what}{expected}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"expression {text!r:.80}: {text[at:].strip()!r:.20} is no part")
        yield str(match.lastgroup), match[str(match.lastgroup)]
        at = match.end()


def _unescaped(match: re.Match[str]) -> str:
    try:
        return _ESCAPES[match[1]]
    except KeyError:
        raise ExpressionError(f"a text has the unknown escape \\{match[1]}") from None


def paths(node: Node) -> Iterator[Path]:
    """Yield every path of an expression, also those inside of paths."""
    match node:
        case Path():
            yield node
            for key in node.keys:
                yield from paths(key)
        case Call():
            for each in node.arguments:
                yield from paths(each)
        case Not():
            yield from paths(node.operand)
        case Binary():
            yield from paths(node.left)
            yield from paths(node.right)
        case Literal():
            return


# --- evaluating


class _MissingError(ExpressionError):
    """A path leads nowhere."""


def evaluate(node: Node, scope: Scope) -> Json:
    """Return the value of an expression. Raises `ExpressionError`."""
    try:
        return _value(node, scope)
    except RecursionError:
        raise ExpressionError("a value is nested too deep to be compared") from None


def is_true(value: Json) -> bool:
    """Return whether a condition holds: false, null, 0 and what is empty do not."""
    return bool(value)


def _value(node: Node, scope: Scope) -> Json:
    match node:
        case Literal():
            value = node.value
        case Path():
            value = _at_path(node, scope)
        case Not():
            value = not is_true(_value(node.operand, scope))
        case Binary("and"):
            value = _value(node.left, scope)
            value = _value(node.right, scope) if is_true(value) else value
        case Binary("or"):
            value = _value(node.left, scope)
            value = value if is_true(value) else _value(node.right, scope)
        case Binary():
            value = _compared(node.operator, _value(node.left, scope), _value(node.right, scope))
        case _:
            value = _called(node, scope)
    return value


def _called(call: Call, scope: Scope) -> Json:
    if call.function == "default":
        return _default(call, scope)
    return FUNCTIONS[call.function].run(*(_value(each, scope) for each in call.arguments))


def _default(node: Call, scope: Scope) -> Json:
    first, second = node.arguments
    try:
        value = _value(first, scope)
    except _MissingError:
        value = None
    return _value(second, scope) if value is None else value


def _at_path(path: Path, scope: Scope) -> Json:
    if path.root not in scope:
        known = ", ".join(sorted(scope))
        raise ExpressionError(f"{path.root!r} is unknown here", hint=f"there are {known}")
    value, walked = scope[path.root], path.root
    for each in path.keys:
        key = _value(each, scope)
        value = _item(value, key, walked)
        walked += f".{key}" if isinstance(key, str) else f"[{shown(key)}]"
    return value


def _item(value: Json, key: Json, walked: str) -> Json:
    if isinstance(value, Mapping) and isinstance(key, str):
        if key in value:
            return value[key]
        raise _MissingError(f"{walked:.200} has no {key!r:.100}")
    if isinstance(value, list) and is_whole(key):
        if -len(value) <= key < len(value):
            return value[key]
        raise _MissingError(f"{walked:.200} has {len(value)} items, none at {key}")
    if value is None:
        raise _MissingError(f"{walked:.200} is null and has no {shown(key)}")
    raise ExpressionError(f"{walked:.200} is {kind(value)}, and {shown(key)} is no key of it")


_ORDERS: Final[Mapping[str, Callable[[Json, Json], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(sign: str, left: Json, right: Json) -> bool:
    if sign in ("==", "!="):
        return equal(left, right) is (sign == "==")
    if sign == "in":
        return contains(right, left)
    are_numbers = is_number(left) and is_number(right)
    if not are_numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ExpressionError(f"{kind(left)} and {kind(right)} cannot be compared with {sign!r}")
    return bool(_ORDERS[sign](left, right))
