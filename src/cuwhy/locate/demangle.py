"""Demangle C++ names of kernels and device functions (Itanium C++ ABI, the mangling that nvcc uses on Linux).

The parser builds a graph in which a substitution (``S1_``) is one shared node, not a copy, and
rendering remembers what each node prints.  A symbol of a few hundred bytes whose expansion would
fill a disk therefore costs no more than its nodes; depth, nodes, steps and text have fixed limits.

Grammar: Itanium C++ ABI, section 5.1 "External Names"; spelling of the output: as GNU ``c++filt``
prints it.  Template parameters are resolved when rendering, because a substitution may stand for
"the first parameter" of one template where it was defined and of another where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_MAX_INPUT = 16 * 1024
_MAX_TEXT = 16 * 1024
# One level of types costs about four interpreter frames while parsing and two while rendering:
# both stay well under the interpreter's default limit of 1000.
_MAX_PARSE_DEPTH = 120
_MAX_NODE_DEPTH = 200
_MAX_NODES = 12_000
_MAX_STEPS = 60_000
_MAX_CHARACTERS = 6 * 1024 * 1024
_MAX_PARAMETERS = 1024


@dataclass(frozen=True, slots=True)
class Demangled:
    """A symbol as a person reads it.

    text: the whole name, as c++filt prints it; at most 16 KiB, a longer one is cut and ends in "…".
    short: the last component without template arguments and parameters ("reduce_kernel");
        "f::lambda" for the call operator of a lambda in f.
    parameters: C type of each parameter, template parameters substituted; () for none; None where
        the symbol does not say (extern "C", Triton, data).
    kinds: parallel to parameters, how to decode the argument's bytes: "pointer", "reference",
        "int8" … "int64", "uint8" … "uint64", "bool", "char", "float", "double", "half", "bfloat16",
        or "enum_or_class" for whatever the name alone does not settle. () where parameters is None.
    """

    text: str
    short: str
    parameters: tuple[str, ...] | None
    kinds: tuple[str, ...] = ()


def demangle(symbol: str) -> Demangled:
    """Demangle one symbol; never raises.

    A symbol that is not mangled C++, is over 16 KiB or breaks a limit is its own text and short
    name, without parameters.  Characters that are not printable come out as "?".

    Also read: GNU clone suffixes (``.constprop.0``), the embedded name of
    ``__nv_static_…__Z…`` and ``_INTERNAL_…__Z…``, and the callee of a cubin's
    ``$caller$callee`` symbols.
    """
    if len(symbol) <= _MAX_INPUT:
        for start in _starts(symbol):
            try:
                return _demangle(symbol[start:])
            except (_GiveUpError, RecursionError):
                continue
    plain = _printable(symbol)
    return Demangled(plain, plain, None)


def _starts(symbol: str) -> list[int]:
    """Offsets at which a mangled name may begin, the likeliest first; at most 8."""
    if symbol.startswith("_Z"):
        return [0]
    if symbol.startswith(("__nv_static_", "_INTERNAL_")):
        return [match.start() + 1 for match in re.finditer("__Z", symbol)][:8]
    if symbol.startswith("$"):
        at = symbol.rfind("$_Z")
        return [at + 1] if at >= 0 else []
    return []


def _demangle(symbol: str) -> Demangled:
    root, clones = _parse(symbol)
    out = _Renderer()
    text = out.text(root)
    if text == "":
        raise _GiveUpError
    for clone in clones:
        text += f" [clone {clone}]"
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 1] + "…"
    text = _printable(text)
    if root.op != "encoding":
        return Demangled(text, text, None)
    short = _printable(out.short(root)[:_MAX_TEXT])
    if len(root.kids) < 2:
        return Demangled(text, short, None)
    pairs = out.parameters(root)
    return Demangled(text, short, tuple(_printable(t) for t, _ in pairs), tuple(k for _, k in pairs))


def _parse(symbol: str) -> tuple[_Node, list[str]]:
    parser = _Parser(symbol)
    try:
        return parser.whole()
    except _GiveUpError:
        if not parser.guessed:
            raise
        return _Parser(symbol, levels=False).whole()


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


class _GiveUpError(Exception):
    """The symbol is not of the grammar, or breaks a limit."""


class _Node:
    """One node of the graph. `free`: what it prints depends on the template arguments around it."""

    __slots__ = ("depth", "free", "kids", "op", "out", "text")
    depth: int
    free: bool

    def __init__(self, op: str, text: str = "", kids: tuple[_Node, ...] = ()) -> None:
        self.op = op
        self.text = text
        self.kids = kids
        depth = 0
        free = op == "parameter"
        for kid in kids:
            if kid.depth > depth:
                depth = kid.depth
            if kid.free:
                free = True
        if depth >= _MAX_NODE_DEPTH:
            raise _GiveUpError
        self.depth = depth + 1
        self.free = free
        self.out: _Out | None = None


# What a type prints left and right of a declarator ("int (*" and ")[3]"), and its shape.
_Out = tuple[str, str, str]

_TYPES = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
}
_BUILTIN = {code: _Node("builtin", text) for code, text in _TYPES.items()}
_D_BUILTIN = {
    code: _Node("builtin", text)
    for code, text in {
        "Da": "auto",
        "Dc": "decltype(auto)",
        "Dd": "decimal64",
        "De": "decimal128",
        "Df": "decimal32",
        "Dh": "half",
        "Di": "char32_t",
        "Dn": "decltype(nullptr)",
        "Ds": "char16_t",
        "Du": "char8_t",
    }.items()
}

# Sizes are those of 64-bit Linux, the only hosts of the CUDA toolkits that mangle this way.
_KINDS = {
    "bool": "bool",
    "char": "char",
    "signed char": "int8",
    "unsigned char": "uint8",
    "char8_t": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "char16_t": "uint16",
    "int": "int32",
    "wchar_t": "int32",
    "unsigned int": "uint32",
    "char32_t": "uint32",
    "long": "int64",
    "long long": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "float": "float",
    "double": "double",
    "half": "half",
    "_Float16": "half",
    "__half": "half",
    "__fp16": "half",
    "c10::Half": "half",
    "cutlass::half_t": "half",
    "std::bfloat16_t": "bfloat16",
    "__bf16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "c10::BFloat16": "bfloat16",
    "cutlass::bfloat16_t": "bfloat16",
    "decltype(nullptr)": "pointer",
}

_LITERAL_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}

_STD = _Node("name", "std")
_CHAR = "char, std::char_traits<char>"
_STD_NAMES = {
    "a": ("std::allocator", "allocator"),
    "b": ("std::basic_string", "basic_string"),
    "s": (f"std::basic_string<{_CHAR}, std::allocator<char> >", "basic_string"),
    "i": (f"std::basic_istream<{_CHAR} >", "basic_istream"),
    "o": (f"std::basic_ostream<{_CHAR} >", "basic_ostream"),
    "d": (f"std::basic_iostream<{_CHAR} >", "basic_iostream"),
}
_STD_SUBSTITUTIONS = {
    code: _Node("std", text, (_Node("name", base),)) for code, (text, base) in _STD_NAMES.items()
}

# Two-letter code: spelling, number of operands in an expression.
_OPERATORS = {
    "aN": ("&=", 2),
    "aS": ("=", 2),
    "aa": ("&&", 2),
    "ad": ("&", 1),
    "an": ("&", 2),
    "at": ("alignof ", 1),
    "aw": ("co_await ", 1),
    "az": ("alignof ", 1),
    "cc": ("const_cast", 2),
    "cl": ("()", 2),
    "cm": (",", 2),
    "co": ("~", 1),
    "dV": ("/=", 2),
    "dX": ("[...]=", 3),
    "da": ("delete[] ", 1),
    "dc": ("dynamic_cast", 2),
    "de": ("*", 1),
    "di": ("=", 2),
    "dl": ("delete ", 1),
    "ds": (".*", 2),
    "dt": (".", 2),
    "dv": ("/", 2),
    "dx": ("]=", 2),
    "eO": ("^=", 2),
    "eo": ("^", 2),
    "eq": ("==", 2),
    "ge": (">=", 2),
    "gs": ("::", 1),
    "gt": (">", 2),
    "ix": ("[]", 2),
    "lS": ("<<=", 2),
    "le": ("<=", 2),
    "ls": ("<<", 2),
    "lt": ("<", 2),
    "mI": ("-=", 2),
    "mL": ("*=", 2),
    "mi": ("-", 2),
    "ml": ("*", 2),
    "mm": ("--", 1),
    "na": ("new[]", 3),
    "ne": ("!=", 2),
    "ng": ("-", 1),
    "nt": ("!", 1),
    "nw": ("new", 3),
    "nx": ("noexcept", 1),
    "oR": ("|=", 2),
    "oo": ("||", 2),
    "or": ("|", 2),
    "pL": ("+=", 2),
    "pl": ("+", 2),
    "pm": ("->*", 2),
    "pp": ("++", 1),
    "ps": ("+", 1),
    "pt": ("->", 2),
    "qu": ("?", 3),
    "rM": ("%=", 2),
    "rS": (">>=", 2),
    "rc": ("reinterpret_cast", 2),
    "rm": ("%", 2),
    "rs": (">>", 2),
    "sP": ("sizeof...", 1),
    "sZ": ("sizeof...", 1),
    "sc": ("static_cast", 2),
    "ss": ("<=>", 2),
    "st": ("sizeof ", 1),
    "sz": ("sizeof ", 1),
    "te": ("typeid ", 1),
    "ti": ("typeid ", 1),
    "tr": ("throw", 0),
    "tw": ("throw ", 1),
}
_TYPE_OPERAND = frozenset(("st", "at", "ti"))
_CASTS = frozenset(("cc", "dc", "rc", "sc"))

_SPECIAL_TYPES = {"TV": "vtable for ", "TT": "VTT for ", "TI": "typeinfo for ", "TS": "typeinfo name for "}
_SPECIAL_NAMES = {
    "TH": "TLS init function for ",
    "TW": "TLS wrapper function for ",
    "GV": "guard variable for ",
}
_SPECIAL_ENCODINGS = {
    "GA": "hidden alias for ",
    "GTt": "transaction clone for ",
    "GTn": "non-transaction clone for ",
}

_DIGITS = re.compile("[0-9]{1,6}")
_CLONE = re.compile(r"\.[a-z_][a-z0-9_]*(?:\.[0-9]+)*|(?:\.[0-9]+)+")
_SEQUENCE = re.compile("([0-9A-Z]{0,6})_")
_ANONYMOUS = re.compile("_GLOBAL_[._$]N")
_END = "\0"


class _Parser:
    """Recursive descent over one symbol; `i` is the place, `subs` the substitutions so far."""

    __slots__ = ("conversion", "depth", "guessed", "i", "levels", "n", "nodes", "quals", "s", "subs")

    def __init__(self, symbol: str, levels: bool = True) -> None:
        self.levels = levels
        self.guessed = False
        self.n = len(symbol)
        # The sentinel saves a bounds check at every look ahead; lengths are still checked against n.
        self.s = symbol + _END * 3
        self.i = 0
        self.subs: list[_Node] = []
        self.depth = 0
        self.nodes = 0
        # cv and ref qualifiers of the member function whose nested name was parsed last.
        self.quals = ""
        self.conversion = False

    def whole(self) -> tuple[_Node, list[str]]:
        self.i = 2
        root = self.encoding(top=True)
        clones = []
        while self.i < self.n:
            match = _CLONE.match(self.s, self.i, self.n)
            if match is None:
                raise _GiveUpError
            clones.append(match[0])
            self.i = match.end()
        return root, clones

    # -- small things

    def make(self, op: str, text: str = "", *kids: _Node) -> _Node:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise _GiveUpError
        return _Node(op, text, kids)

    def eat(self, text: str) -> bool:
        if self.s.startswith(text, self.i):
            self.i += len(text)
            return True
        return False

    def need(self, text: str) -> None:
        if not self.s.startswith(text, self.i):
            raise _GiveUpError
        self.i += len(text)

    def number(self) -> int:
        match = _DIGITS.match(self.s, self.i)
        if match is None:
            raise _GiveUpError
        self.i = match.end()
        return int(match[0])

    def optional_index(self) -> int:
        """`_` is 0, `0_` is 1, `7_` is 8."""
        value = 0 if self.s[self.i] == "_" else self.number() + 1
        self.need("_")
        return value

    def offset(self) -> None:
        self.eat("n")
        self.number()

    def down(self) -> None:
        self.depth += 1
        if self.depth > _MAX_PARSE_DEPTH:
            raise _GiveUpError

    # -- names

    def encoding(self, top: bool) -> _Node:
        c = self.s[self.i]
        if c in "GT" and self.s[self.i : self.i + 2] not in ("GL",):
            return self.special()
        self.down()
        self.quals = ""
        name = self.name()
        quals = self.quals
        c = self.s[self.i]
        if self.i >= self.n or c == "E" or (top and c == "."):
            # c++filt refuses qualifiers without a parameter list, they only occur on functions.
            if quals:
                raise _GiveUpError
            self.depth -= 1
            return self.make("encoding", "", name)
        with_return = self.eat("J") or _has_return(name)
        function = self.signature(with_return, quals)
        self.depth -= 1
        node = self.make("encoding", "", name, function)
        if _template_of(name) is not None and not name.free:
            node.free = False
        return node

    def signature(self, with_return: bool, quals: str) -> _Node:
        """Parameter types up to E, a clone suffix or the end; kid 0 is the return type or empty."""
        kids = [self.type() if with_return else _NOTHING]
        s = self.s
        while self.i < self.n:
            c = s[self.i]
            if c in "E." or (c in "RO" and s[self.i + 1] == "E"):
                break
            kids.append(self.type())
        if len(kids) == 1:
            raise _GiveUpError
        if len(kids) == 2 and kids[1] is _BUILTIN["v"]:
            kids.pop()
        return self.make("function", quals, *kids)

    def special(self) -> _Node:
        code = self.s[self.i : self.i + 2]
        if code in _SPECIAL_TYPES:
            self.i += 2
            return self.make("special", _SPECIAL_TYPES[code], self.type())
        if code in _SPECIAL_NAMES:
            self.i += 2
            return self.make("special", _SPECIAL_NAMES[code], self.name())
        if code == "TC":
            self.i += 2
            derived = self.type()
            self.offset()
            self.need("_")
            return self.make("construction", "", self.type(), derived)
        if code == "TA":
            self.i += 2
            return self.make("special", "template parameter object for ", self.template_argument())
        if code in ("Th", "Tv", "Tc"):
            self.i += 1
            for _ in range(2 if self.eat("c") else 1):
                virtual = self.call_offset()
            text = "covariant return thunk to "
            if code != "Tc":
                text = "virtual thunk to " if virtual else "non-virtual thunk to "
            return self.make("special", text, self.nested_encoding())
        for prefix, text in _SPECIAL_ENCODINGS.items():
            if self.eat(prefix):
                return self.make("special", text, self.nested_encoding())
        if self.eat("GR"):
            name = self.name()
            number = self.optional_index() if self.i < self.n else 0
            return self.make("special", f"reference temporary #{number} for ", name)
        raise _GiveUpError

    def nested_encoding(self) -> _Node:
        self.down()
        node = self.encoding(top=True)
        self.depth -= 1
        return node

    def call_offset(self) -> bool:
        if self.eat("h"):
            self.offset()
            self.need("_")
            return False
        self.need("v")
        self.offset()
        self.need("_")
        self.offset()
        self.need("_")
        return True

    def name(self) -> _Node:
        s, i = self.s, self.i
        c = s[i]
        if c == "N":
            return self.nested_name()
        if c == "Z":
            return self.local_name()
        substituted = False
        if c == "S":
            if s[i + 1] == "t":
                self.i += 2
                node = self.make("qualified", "", _STD, self.unqualified(None))
            else:
                node = self.substitution()
                substituted = True
        else:
            node = self.unqualified(None)
        if self.s[self.i] == "I":
            if not substituted:
                self.subs.append(node)
            node = self.make("template", "", node, *self.template_arguments())
        return node

    def cv_qualifiers(self) -> str:
        text = ""
        while True:
            c = self.s[self.i]
            # Outermost first in the name, innermost first in the text.
            if c == "K":
                text = " const" + text
            elif c == "V":
                text = " volatile" + text
            elif c == "r":
                text = " restrict" + text
            else:
                return text
            self.i += 1

    def ref_qualifier(self) -> str:
        if self.eat("R"):
            return " &"
        return " &&" if self.eat("O") else ""

    def nested_name(self) -> _Node:
        self.i += 1
        s = self.s
        explicit_object = self.eat("H")
        quals = "" if explicit_object else self.cv_qualifiers()
        quals += self.ref_qualifier()
        node: _Node | None = None
        subs = self.subs
        while True:
            c = s[self.i]
            if "0" <= c <= "9" or "a" <= c <= "z" or c in "CUL":
                part = self.unqualified(node)
                node = part if node is None else self.make("qualified", "", node, part)
            elif c == "E":
                self.i += 1
                break
            elif c == "I":
                if node is None:
                    raise _GiveUpError
                node = self.make("template", "", node, *self.template_arguments())
            elif c == "S" and node is None:
                node = self.substitution()
                if node is not _STD and s[self.i] == "E":
                    raise _GiveUpError
                continue
            elif c == "T" and node is None:
                node = self.template_parameter()
            elif c == "D":
                if s[self.i + 1] in "Tt":
                    if node is not None:
                        raise _GiveUpError
                    node = self.type()
                    # The type has put itself among the substitutions already.
                    continue
                part = self.unqualified(node)
                node = part if node is None else self.make("qualified", "", node, part)
            elif c == "M" and node is not None:
                # The initializer of a data member is the scope of the lambda that follows.
                self.i += 1
                continue
            else:
                raise _GiveUpError
            if s[self.i] != "E":
                subs.append(node)
        if node is None:
            raise _GiveUpError
        # Last, so that the names inside template arguments do not overwrite it.
        self.quals = quals
        return node

    def local_name(self) -> _Node:
        self.down()
        self.i += 1
        function = self.encoding(top=False)
        if function.op == "encoding":
            function.text = "scope"
        self.need("E")
        quals = ""
        if self.eat("s"):
            self.discriminator()
            entity = self.make("name", "string literal")
        else:
            default = 0
            if self.s[self.i] == "d" and self.s[self.i + 1] in "_0123456789":
                self.i += 1
                default = self.optional_index() + 1
            self.quals = ""
            entity = self.name()
            quals = self.quals
            if default:
                where = self.make("name", f"{{default arg#{default}}}")
                entity = self.make("local", "", where, entity)
            elif entity.op not in ("lambda", "unnamed"):
                self.discriminator()
        self.quals = quals
        self.depth -= 1
        return self.make("local", "", function, entity)

    def discriminator(self) -> None:
        if self.s[self.i] != "_":
            return
        if self.s[self.i + 1] == "_":
            self.i += 2
            self.number()
            self.need("_")
        elif "0" <= self.s[self.i + 1] <= "9":
            self.i += 2

    def unqualified(self, scope: _Node | None) -> _Node:
        s, i = self.s, self.i
        c = s[i]
        if "0" <= c <= "9":
            node = self.source_name()
        elif "a" <= c <= "z":
            node = self.operator_name()
        elif c == "C":
            if scope is None:
                raise _GiveUpError
            inherited = s[i + 1] == "I"
            self.i += 3 if inherited else 2
            if s[self.i - 1] not in "12345":
                raise _GiveUpError
            owner = self.type() if inherited else scope
            node = self.make("constructor", "", _base(owner))
        elif c == "D" and s[i + 1] == "C":
            self.i += 2
            names = [self.source_name()]
            while not self.eat("E"):
                names.append(self.source_name())
            node = self.make("binding", "", *names)
        elif c == "D":
            if scope is None or s[i + 1] not in "01245":
                raise _GiveUpError
            self.i += 2
            node = self.make("constructor", "~", _base(scope))
        elif c == "L":
            self.i += 1
            node = self.source_name()
            self.discriminator()
        elif c == "U" and s[i + 1] == "l":
            node = self.closure()
        elif c == "U" and s[i + 1] == "t":
            self.i += 2
            node = self.make("unnamed", f"{{unnamed type#{self.optional_index() + 1}}}")
            self.subs.append(node)
        else:
            raise _GiveUpError
        while s[self.i] == "B":
            self.i += 1
            node = self.make("tagged", f"[abi:{self.source_name().text}]", node)
        return node

    def source_name(self) -> _Node:
        length = self.number()
        start = self.i
        if length == 0 or start + length > self.n:
            raise _GiveUpError
        self.i = start + length
        text = self.s[start : self.i]
        if text[0] == "_" and _ANONYMOUS.match(text):
            text = "(anonymous namespace)"
        return self.make("name", text)

    def operator_name(self) -> _Node:
        s = self.s
        self.eat("on")
        code = s[self.i : self.i + 2]
        self.i += 2
        if code == "cv":
            before, self.conversion = self.conversion, True
            node = self.make("conversion", "", self.type())
            self.conversion = before
            return node
        if code == "li":
            return self.make("operator", f'operator"" {self.source_name().text}')
        if code[0] == "v" and "0" <= code[1] <= "9":
            return self.make("operator", "operator " + self.source_name().text)
        known = _OPERATORS.get(code)
        if known is None:
            raise _GiveUpError
        text = known[0].rstrip()
        return self.make("operator", "operator" + (" " if text[0].isalpha() else "") + text)

    def closure(self) -> _Node:
        self.i += 2
        head: list[_Node] = []
        while self.s[self.i] == "T" and self.s[self.i + 1] in "yn":
            self.i += 2
            if self.s[self.i - 1] == "y":
                head.append(self.make("name", f"typename $T{len(head)}"))
            else:
                head.append(self.make("declared", f"$N{len(head)}", self.type()))
        kids = []
        while not self.eat("E"):
            kids.append(self.type())
        if not kids:
            raise _GiveUpError
        if len(kids) == 1 and kids[0] is _BUILTIN["v"]:
            kids.pop()
        number = self.optional_index() + 1
        template = self.make("list", "", *head)
        node = self.make("lambda", str(number), template, *kids)
        # Its T_ are its own: nothing around it can change what it prints.
        node.free = any(kid.free for kid in head)
        return node

    # -- substitutions and templates

    def substitution(self) -> _Node:
        c = self.s[self.i + 1]
        if c == "t":
            self.i += 2
            return _STD
        known = _STD_SUBSTITUTIONS.get(c)
        if known is not None:
            self.i += 2
            return known if self.s[self.i] != "B" else self.tagged(known)
        match = _SEQUENCE.match(self.s, self.i + 1)
        if match is None:
            raise _GiveUpError
        index = int(match[1], 36) + 1 if match[1] else 0
        if index >= len(self.subs):
            raise _GiveUpError
        self.i = match.end()
        return self.subs[index]

    def tagged(self, node: _Node) -> _Node:
        while self.eat("B"):
            node = self.make("tagged", f"[abi:{self.source_name().text}]", node)
        self.subs.append(node)
        return node

    def template_parameter(self) -> _Node:
        self.i += 1
        index = self.optional_index()
        return self.make("parameter", str(index))

    def template_arguments(self) -> list[_Node]:
        self.down()
        quals, before = self.quals, self.conversion
        self.conversion = False
        self.i += 1
        found = []
        s = self.s
        while s[self.i] != "E":
            found.append(self.template_argument())
        self.i += 1
        self.quals, self.conversion = quals, before
        self.depth -= 1
        return found

    def template_argument(self) -> _Node:
        c = self.s[self.i]
        if c == "L":
            return self.primary()
        if c == "X":
            self.i += 1
            node = self.expression()
            self.need("E")
            return node
        if c in "IJ":
            return self.make("pack", "", *self.template_arguments())
        return self.type()

    # -- types

    def type(self) -> _Node:
        s = self.s
        c = s[self.i]
        node = _BUILTIN.get(c)
        if node is not None:
            self.i += 1
            return node
        self.down()
        if "0" <= c <= "9" or c in "NZ":
            node = self.name()
        elif c == "P":
            self.i += 1
            node = self.make("pointer", "*", self.type())
        elif c in "KVr":
            quals = self.cv_qualifiers()
            # The unqualified function type is no substitution of its own.
            if s[self.i] == "F" or (s[self.i] == "D" and s[self.i + 1] in "oOwx"):
                node = self.function(quals)
            else:
                node = self.make("suffix", quals, self.type())
        elif c == "R":
            self.i += 1
            node = self.make("reference", "&", self.type())
        elif c == "O":
            self.i += 1
            node = self.make("reference", "&&", self.type())
        elif c == "T":
            node = self.template_type()
        elif c == "S":
            known = s[self.i + 1]
            if known == "t":
                node = self.name()
            else:
                node = self.substitution()
                if s[self.i] != "I":
                    self.depth -= 1
                    return node
                node = self.make("template", "", node, *self.template_arguments())
        elif c == "F":
            node = self.function("")
        elif c == "A":
            node = self.array()
        elif c == "M":
            self.i += 1
            owner = self.type()
            node = self.make("member", "", owner, self.type())
        elif c == "D":
            node = self.d_type()
            if node.op == "builtin":
                self.depth -= 1
                return node
        elif c == "U":
            self.i += 1
            if s[self.i] in "lt":
                self.i -= 1
                node = self.unqualified(None)
            else:
                qualifier = self.source_name()
                if s[self.i] == "I":
                    qualifier = self.make("template", "", qualifier, *self.template_arguments())
                node = self.make("vendor", "", qualifier, self.type())
        elif c == "u":
            self.i += 1
            node = self.make("vendor_type", "", self.source_name())
            if s[self.i] == "I":
                node = self.make("template", "", node, *self.template_arguments())
        elif c in "CG":
            self.i += 1
            node = self.make("suffix", " _Complex" if c == "C" else " _Imaginary", self.type())
        else:
            raise _GiveUpError
        self.subs.append(node)
        self.depth -= 1
        return node

    def template_type(self) -> _Node:
        if self.s[self.i + 1] in "sue":
            self.i += 2
            return self.name()
        node = self.template_parameter()
        if self.s[self.i] != "I":
            return node
        if self.conversion:
            # `cvT_I…E`: the arguments may belong to the operator instead; they do unless more follow.
            state = self.i, len(self.subs), self.depth, self.quals
            self.subs.append(node)
            arguments = self.template_arguments()
            if self.s[self.i] == "I":
                return self.make("template", "", node, *arguments)
            self.i, length, self.depth, self.quals = state
            del self.subs[length:]
            return node
        self.subs.append(node)
        return self.make("template", "", node, *self.template_arguments())

    def function(self, quals: str) -> _Node:
        s = self.s
        text = ""
        condition = None
        while s[self.i] == "D":
            code = s[self.i + 1]
            self.i += 2
            if code == "o":
                text += " noexcept"
            elif code == "x":
                text += " transaction_safe"
            elif code == "O":
                condition = self.expression()
                self.need("E")
            else:
                raise _GiveUpError
        self.need("F")
        self.eat("Y")
        node = self.signature(True, "")
        ref = self.ref_qualifier()
        self.need("E")
        node.text = quals + ref + text
        return node if condition is None else self.make("noexcept", "", node, condition)

    def array(self) -> _Node:
        self.i += 1
        c = self.s[self.i]
        if c == "_":
            size = _NOTHING
        elif "0" <= c <= "9":
            start = self.i
            self.number()
            size = self.make("name", self.s[start : self.i])
        else:
            size = self.expression()
        self.need("_")
        return self.make("array", "", size, self.type())

    def d_type(self) -> _Node:
        s = self.s
        code = s[self.i : self.i + 2]
        node = _D_BUILTIN.get(code)
        if node is not None:
            self.i += 2
            return node
        if code in ("DT", "Dt"):
            self.i += 2
            node = self.make("decltype", "", self.expression())
            self.need("E")
            return node
        if code == "Dp":
            self.i += 2
            return self.make("expansion", "type", self.type())
        if code == "Dv":
            self.i += 2
            if "0" <= s[self.i] <= "9":
                size = self.make("name", str(self.number()))
            else:
                self.eat("_")
                size = self.expression()
            self.need("_")
            return self.make("vector", "", size, self.type())
        if code == "DF":
            self.i += 2
            bits = self.number()
            if self.eat("b"):
                return self.make("builtin", f"std::bfloat{bits}_t")
            text = f"_Float{bits}" + ("x" if self.eat("x") else "")
            if not text.endswith("x"):
                self.need("_")
            return self.make("builtin", text)
        if code in ("Do", "DO", "Dw", "Dx"):
            return self.function("")
        raise _GiveUpError

    # -- expressions

    def primary(self) -> _Node:
        self.need("L")
        if self.eat("_Z") or self.s[self.i] == "Z":
            self.eat("Z")
            self.down()
            node = self.encoding(top=False)
            self.depth -= 1
            self.need("E")
            return node
        kind = self.type()
        end = self.s.find("E", self.i, self.n)
        if end < 0:
            raise _GiveUpError
        value = self.s[self.i : end]
        if not value and kind is not _D_BUILTIN["Dn"]:
            raise _GiveUpError
        self.i = end + 1
        return self.make("literal", value, kind)

    def expressions(self, end: str = "E") -> _Node:
        found = []
        while not self.eat(end):
            found.append(self.expression())
        return self.make("list", "", *found)

    def with_arguments(self, node: _Node) -> _Node:
        if self.s[self.i] == "I":
            return self.make("template", "", node, *self.template_arguments())
        return node

    def expression(self) -> _Node:
        self.down()
        node = self.expression_inner()
        self.depth -= 1
        return node

    def expression_inner(self) -> _Node:
        s, i = self.s, self.i
        c, code = s[i], s[i : i + 2]
        if c == "L":
            return self.primary()
        if c == "T":
            return self.template_parameter()
        if "0" <= c <= "9":
            return self.with_arguments(self.unqualified(None))
        if code == "sr":
            return self.scope_resolution()
        if code == "sp":
            self.i += 2
            return self.make("expansion", "", self.expression())
        if code in ("fp", "fL"):
            return self.function_parameter()
        if code == "on":
            return self.with_arguments(self.operator_name())
        if code in ("il", "tl"):
            self.i += 2
            kind = self.type() if code == "tl" else _NOTHING
            return self.make("braces", "", kind, self.expressions())
        if code in ("fl", "fr", "fL", "fR"):
            return self.fold()
        if code == "cv":
            self.i += 2
            kind = self.type()
            value = self.expressions() if self.eat("_") else self.expression()
            return self.make("cast", "", kind, value)
        known = _OPERATORS.get(code)
        if known is None:
            raise _GiveUpError
        self.i += 2
        return self.operation(code, *known)

    def operation(self, code: str, text: str, operands: int) -> _Node:
        if operands == 0:
            return self.make("operator", text)
        if code in ("sZ", "sP"):
            if code == "sP":
                found: list[_Node] = []
                while not self.eat("E"):
                    found.append(self.template_argument())
                return self.make("count", "", *found)
            return self.make("count", "", self.expression())
        if operands == 1:
            if code in ("pp", "mm"):
                prefix = self.eat("_")
                return self.make("unary" if prefix else "postfix", text, self.expression())
            operand = self.type() if code in _TYPE_OPERAND else self.expression()
            if code == "ad":
                operand = _address_operand(operand)
            if code in ("st", "nx"):
                return self.make("call_like", text, operand)
            if code == "gs":
                return self.make("global", text, operand)
            return self.make("unary", text, operand)
        if code in _CASTS:
            kind = self.type()
            return self.make("named_cast", text, kind, self.expression())
        if code == "cl":
            callee = self.expression()
            if callee.op == "encoding":
                callee = callee.kids[0]
            return self.make("call", "", callee, self.expressions())
        if code in ("dt", "pt"):
            left = self.expression()
            if "0" <= self.s[self.i] <= "9":
                right = self.with_arguments(self.unqualified(None))
            else:
                right = self.expression()
            return self.make("binary", text, left, right)
        if code in ("nw", "na"):
            return self.new(text)
        if operands == 2:
            left = self.expression()
            return self.make("index" if code == "ix" else "binary", text, left, self.expression())
        if code == "qu":
            test = self.expression()
            left = self.expression()
            return self.make("conditional", "", test, left, self.expression())
        raise _GiveUpError

    def new(self, text: str) -> _Node:
        placement = self.expressions("_")
        kind = self.type()
        if self.eat("E"):
            return self.make("new", text, placement, kind)
        if self.eat("pi"):
            return self.make("new", text, placement, kind, self.expressions())
        if self.s.startswith("il", self.i):
            return self.make("new", text, placement, kind, self.expression())
        raise _GiveUpError

    def fold(self) -> _Node:
        code = self.s[self.i : self.i + 2]
        self.i += 2
        known = _OPERATORS.get(self.s[self.i : self.i + 2])
        if known is None:
            raise _GiveUpError
        self.i += 2
        left = self.expression()
        if code in ("fL", "fR"):
            return self.make("fold", known[0], left, self.make("name", "..."), self.expression())
        dots = self.make("name", "...")
        pair = (dots, left) if code == "fl" else (left, dots)
        return self.make("fold", known[0], *pair)

    def function_parameter(self) -> _Node:
        s = self.s
        if self.eat("fpT"):
            return self.make("this", "this")
        if s.startswith("fL", self.i):
            if not "0" <= s[self.i + 2] <= "9":
                return self.fold()
            self.i += 2
            self.number()
            self.need("p")
        else:
            self.i += 2
        self.cv_qualifiers()
        return self.make("this", f"{{parm#{self.optional_index() + 1}}}")

    def scope_resolution(self) -> _Node:
        self.i += 2
        if self.eat("N"):
            node = self.type()
            while not self.eat("E"):
                node = self.make("qualified", "", node, self.with_arguments(self.source_name()))
        elif "0" <= self.s[self.i] <= "9":
            return self.qualifier_levels()
        else:
            node = self.type()
        return self.make("qualified", "", node, self.with_arguments(self.unqualified(node)))

    def qualifier_levels(self) -> _Node:
        """`A B E C` is A::B::C, yet `A B` may be A::B with an E that ends something else.

        Only the rest of the symbol tells; `_parse` tries again with `levels` off when this guess fails.
        """
        state = self.i, len(self.subs)
        node = self.with_arguments(self.source_name())
        while "0" <= self.s[self.i] <= "9":
            node = self.make("qualified", "", node, self.with_arguments(self.source_name()))
        if self.s[self.i] == "E" and self.s[self.i + 1] in "0123456789o":
            self.guessed = True
            if self.levels:
                self.i += 1
                return self.with_arguments(self.make("qualified", "", node, self.unqualified(node)))
        # Read it again: here the first name is a type, and so a substitution.
        self.i = state[0]
        del self.subs[state[1] :]
        node = self.type()
        return self.make("qualified", "", node, self.with_arguments(self.unqualified(node)))


_NOTHING = _Node("nothing")


def _template_of(name: _Node) -> _Node | None:
    """The template instance that a function's name ends in, or None."""
    while name.op == "local":
        name = name.kids[1]
    return name if name.op == "template" else None


def _base(node: _Node) -> _Node:
    """The last component of a name, without template arguments and tags."""
    while node.op in ("qualified", "template", "tagged", "local", "std"):
        node = node.kids[1] if node.op in ("qualified", "local") else node.kids[0]
    return node


def _has_return(name: _Node) -> bool:
    """Templates carry their return type, unless they are constructors, destructors or conversions."""
    template = _template_of(name)
    return template is not None and _base(template).op not in ("constructor", "conversion")


def _address_operand(node: _Node) -> _Node:
    """The address of a qualified function is printed without its parameters."""
    if node.op == "encoding" and len(node.kids) == 2 and node.kids[0].op == "qualified":
        return node.kids[0]
    return node


class _Scope:
    """Template arguments that T_, T0_, … stand for, and the scope around them; None: inside a lambda."""

    __slots__ = ("arguments", "outer", "serial")

    def __init__(self, arguments: tuple[_Node, ...] | None, outer: _Scope | None, serial: int) -> None:
        self.arguments = arguments
        self.outer = outer
        self.serial = serial


_SIMPLE = frozenset(("name", "qualified", "braces", "this"))


class _Renderer:
    """Turns nodes into text. What a node prints is kept: per node, or per node and scope if free."""

    __slots__ = ("characters", "element", "memo", "scope", "scopes", "steps")

    def __init__(self) -> None:
        self.scope: _Scope | None = None
        # Which element of its pack a T_ stands for, inside a pack expansion.
        self.element: int | None = None
        self.memo: dict[tuple[int, int, int | None], _Out] = {}
        self.scopes: dict[tuple[int, int], _Scope] = {}
        self.steps = 0
        self.characters = 0

    def text(self, node: _Node) -> str:
        left, right, _ = self.out(node)
        return left + right if right else left

    def out(self, node: _Node) -> _Out:
        """What a node prints; each side is cut where it passes the limit of the whole text."""
        key = None
        if node.free:
            key = (id(node), -1 if self.scope is None else self.scope.serial, self.element)
            known = self.memo.get(key)
        else:
            known = node.out
        if known is not None:
            return known
        self.steps += 1
        left, right, shape = _RENDER[node.op](self, node)
        self.characters += len(left) + len(right)
        if self.steps > _MAX_STEPS or self.characters > _MAX_CHARACTERS:
            raise _GiveUpError
        # What follows the cut cannot show either, so the beginning of the text stays exact.
        result = (left[: _MAX_TEXT + 1], right[: _MAX_TEXT + 1], shape)
        if key is None:
            node.out = result
        else:
            self.memo[key] = result
        return result

    def joined(self, nodes: tuple[_Node, ...]) -> str:
        return self.comma(nodes)[0]

    def comma(self, nodes: tuple[_Node, ...]) -> tuple[str, bool]:
        """Comma list, and whether empty packs were dropped from its end.

        c++filt drops the comma before an empty rest, but not the one after an empty first.
        """
        texts = []
        total = 0
        trimmed = False
        for node in nodes:
            left, right, shape = self.out(node)
            texts.append(left + right if right else left)
            trimmed = shape == "trimmed"
            total += len(left) + len(right) + 2
            if total > _MAX_TEXT:
                break
        while len(texts) > 1 and not texts[-1]:
            texts.pop()
            trimmed = True
        return ", ".join(texts), trimmed

    def operand(self, node: _Node) -> str:
        text = self.text(node)
        return text if node.op in _SIMPLE else f"({text})"

    # -- scopes

    def push(self, arguments: tuple[_Node, ...] | None, owner: _Node) -> _Scope:
        """The scope of a template instance (or lambda); the same one each time, so that memory works."""
        key = (id(owner), -1 if self.scope is None else self.scope.serial)
        scope = self.scopes.get(key)
        if scope is None:
            scope = self.scopes[key] = _Scope(arguments, self.scope, len(self.scopes))
        return scope

    def argument(self, node: _Node) -> tuple[_Node, _Scope | None] | None:
        """What a template parameter stands for and the scope of that; None inside a lambda."""
        scope = self.scope
        if scope is None:
            raise _GiveUpError
        if scope.arguments is None:
            return None
        index = int(node.text)
        if index >= len(scope.arguments):
            raise _GiveUpError
        found = scope.arguments[index]
        if found.op == "pack" and self.element is not None:
            found = found.kids[self.element] if self.element < len(found.kids) else _NOTHING
        return found, scope.outer

    def pack_of(self, node: _Node) -> _Node | None:
        """The first pack that a pattern mentions, or None."""
        stack, seen = [node], set()
        while stack:
            node = stack.pop()
            if not node.free or id(node) in seen or node.op in ("lambda", "encoding"):
                continue
            seen.add(id(node))
            self.steps += 1
            if node.op == "parameter":
                element, self.element = self.element, None
                found = self.argument(node)
                self.element = element
                if found is not None and found[0].op == "pack":
                    return found[0]
                continue
            stack.extend(reversed(node.kids))
        return None

    # -- names

    def plain(self, node: _Node) -> _Out:
        return node.text, "", ""

    def encoding(self, node: _Node) -> _Out:
        name = node.kids[0]
        if len(node.kids) == 1:
            return self.text(name), "", ""
        before = self.scope
        template = _template_of(name)
        if template is not None:
            self.scope = self.push(template.kids[1:], template)
        function = node.kids[1]
        text = self.text(name) + "(" + self.joined(function.kids[1:]) + ")" + function.text
        # The function around a local entity is printed without its return type.
        if function.kids[0] is not _NOTHING and node.text != "scope":
            left, right, _ = self.out(function.kids[0])
            text = left + ("" if right else " ") + text + right
        self.scope = before
        return text, "", ""

    def local(self, node: _Node) -> _Out:
        return self.text(node.kids[0]) + "::" + self.text(node.kids[1]), "", ""

    def qualified(self, node: _Node) -> _Out:
        return self.text(node.kids[0]) + "::" + self.text(node.kids[1]), "", ""

    def template(self, node: _Node) -> _Out:
        name = self.text(node.kids[0])
        arguments, trimmed = self.comma(node.kids[1:])
        opening = " <" if name.endswith("<") else "<"
        # c++filt parts two ">", but not where it has dropped an empty pack after the first.
        closing = " >" if arguments.endswith(">") and not trimmed else ">"
        return name + opening + arguments + closing, "", ""

    def tagged(self, node: _Node) -> _Out:
        return self.text(node.kids[0]) + node.text, "", ""

    def binding(self, node: _Node) -> _Out:
        return "[" + self.joined(node.kids) + "]", "", ""

    def conversion(self, node: _Node) -> _Out:
        return "operator " + self.text(node.kids[0]), "", ""

    def closure(self, node: _Node) -> _Out:
        before, element = self.scope, self.element
        self.scope, self.element = self.push(None, node), None
        head = f"<{self.joined(node.kids[0].kids)}>" if node.kids[0].kids else ""
        text = f"{{lambda{head}({self.joined(node.kids[1:])})#{node.text}}}"
        self.scope, self.element = before, element
        return text, "", ""

    def declared(self, node: _Node) -> _Out:
        return f"{self.text(node.kids[0])} {node.text}", "", ""

    def special(self, node: _Node) -> _Out:
        return node.text + self.text(node.kids[0]), "", ""

    def construction(self, node: _Node) -> _Out:
        return f"construction vtable for {self.text(node.kids[0])}-in-{self.text(node.kids[1])}", "", ""

    # -- types

    def parameter(self, node: _Node) -> _Out:
        found = self.argument(node)
        if found is None:
            # A parameter of a generic lambda: c++filt numbers them from 1.
            return f"auto:{int(node.text) + 1}", "", ""
        before, element = self.scope, self.element
        self.scope, self.element = found[1], None
        result = self.out(found[0])
        self.scope, self.element = before, element
        return result

    def pack(self, node: _Node) -> _Out:
        text, trimmed = self.comma(node.kids)
        return text, "", "trimmed" if trimmed else ""

    def pointer(self, node: _Node) -> _Out:
        return self.declarator(node.kids[0], node.text, "")

    def declarator(self, target: _Node, mark: str, shape: str) -> _Out:
        left, right, inner = self.out(target)
        if inner == "function":
            return f"{left}({mark}", ")" + right, shape
        if inner == "array":
            return f"{left} ({mark}", ")" + right, shape
        return left + mark, right, shape

    def reference(self, node: _Node) -> _Out:
        left, right, shape = self.out(node.kids[0])
        if shape in ("&", "&&"):
            # Reference collapsing: only && of && stays &&.
            if shape == "&&" and node.text == "&":
                return left[:-1], right, "&"
            return left, right, shape
        return self.declarator(node.kids[0], node.text, node.text)

    def suffix(self, node: _Node) -> _Out:
        left, right, shape = self.out(node.kids[0])
        if shape == "function":
            # A template argument: the standard ignores const on a function type.
            return left, right, shape
        # A type that is const already stays so: `T const` with T = `int const`.
        text = "" if node.text == " const" and left.endswith(" const") and not right else node.text
        return left + text, right, shape if shape == "array" else ""

    def vendor(self, node: _Node) -> _Out:
        left, right, _ = self.out(node.kids[1])
        return f"{left} {self.text(node.kids[0])}", right, ""

    def vendor_type(self, node: _Node) -> _Out:
        return self.text(node.kids[0]), "", ""

    def vector(self, node: _Node) -> _Out:
        left, right, _ = self.out(node.kids[1])
        return f"{left} __vector({self.text(node.kids[0])})", right, ""

    def function(self, node: _Node) -> _Out:
        left, right, _ = self.out(node.kids[0])
        tail = f"({self.joined(node.kids[1:])}){node.text}{right}"
        return left + ("" if right else " "), tail, "function"

    def noexcept(self, node: _Node) -> _Out:
        left, right, shape = self.out(node.kids[0])
        return left, f"{right} noexcept({self.text(node.kids[1])})", shape

    def array(self, node: _Node) -> _Out:
        left, right, _ = self.out(node.kids[1])
        tail = right[1:] if right.startswith(" [") else right
        return left, f" [{self.text(node.kids[0])}]{tail}", "array"

    def member(self, node: _Node) -> _Out:
        owner = self.text(node.kids[0])
        left, right, inner = self.out(node.kids[1])
        if inner == "function":
            return f"{left}({owner}::*", ")" + right, ""
        if inner == "array":
            return f"{left} ({owner}::*", ")" + right, ""
        return f"{left} {owner}::*", right, ""

    def decltype(self, node: _Node) -> _Out:
        return f"decltype ({self.text(node.kids[0])})", "", ""

    def expansion(self, node: _Node) -> _Out:
        pattern = node.kids[0]
        pack = self.pack_of(pattern)
        if pack is None:
            return self.operand(pattern) + "...", "", ""
        before = self.element
        texts = []
        total = 0
        for self.element in range(len(pack.kids)):
            texts.append(self.text(pattern))
            total += len(texts[-1]) + 2
            if total > _MAX_TEXT:
                break
        self.element = before
        return ", ".join(texts), "", ""

    # -- expressions

    def literal(self, node: _Node) -> _Out:
        kind, value = node.kids[0], node.text
        negative = value.startswith("n")
        number = "-" + value[1:] if negative else value
        if kind.op == "builtin":
            if kind.text == "bool" and value in ("0", "1"):
                return ("true" if value == "1" else "false"), "", ""
            suffix = _LITERAL_OF.get(kind.text)
            if suffix is not None:
                return number + suffix, "", ""
            if kind.text in ("float", "double", "long double", "__float128"):
                sign = "-" if negative else ""
                return f"({kind.text}){sign}[{number.lstrip('-')}]", "", ""
        return f"({self.text(kind)}){number}", "", ""

    def comma_list(self, node: _Node) -> _Out:
        return self.joined(node.kids), "", ""

    def braces(self, node: _Node) -> _Out:
        return f"{self.text(node.kids[0])}{{{self.text(node.kids[1])}}}", "", ""

    def cast(self, node: _Node) -> _Out:
        return f"({self.text(node.kids[0])}){self.operand(node.kids[1])}", "", ""

    def named_cast(self, node: _Node) -> _Out:
        return f"{node.text}<{self.text(node.kids[0])}>({self.text(node.kids[1])})", "", ""

    def unary(self, node: _Node) -> _Out:
        return node.text + self.operand(node.kids[0]), "", ""

    def postfix(self, node: _Node) -> _Out:
        return self.operand(node.kids[0]) + node.text, "", ""

    def call_like(self, node: _Node) -> _Out:
        return f"{node.text}({self.text(node.kids[0])})", "", ""

    def global_name(self, node: _Node) -> _Out:
        return node.text + self.text(node.kids[0]), "", ""

    def binary(self, node: _Node) -> _Out:
        text = self.operand(node.kids[0]) + node.text + self.operand(node.kids[1])
        # Else it would read as the end of the template arguments.
        return (f"({text})" if node.text == ">" else text), "", ""

    def index(self, node: _Node) -> _Out:
        return f"{self.operand(node.kids[0])}[{self.text(node.kids[1])}]", "", ""

    def call(self, node: _Node) -> _Out:
        return f"{self.operand(node.kids[0])}({self.text(node.kids[1])})", "", ""

    def conditional(self, node: _Node) -> _Out:
        test, left, right = (self.operand(kid) for kid in node.kids)
        return f"{test}?{left} : {right}", "", ""

    def fold(self, node: _Node) -> _Out:
        parts = [kid.text if kid.text == "..." else self.operand(kid) for kid in node.kids]
        return f"({node.text.join(parts)})", "", ""

    def new(self, node: _Node) -> _Out:
        placement = self.text(node.kids[0])
        text = node.text + (f" ({placement})" if placement else "") + " " + self.text(node.kids[1])
        if len(node.kids) > 2:
            text += self.operand(node.kids[2])
        return text, "", ""

    def count(self, node: _Node) -> _Out:
        total = 0
        for kid in node.kids:
            pack = self.pack_of(kid)
            if pack is None and len(node.kids) == 1:
                return f"sizeof...({self.text(kid)})", "", ""
            total += len(pack.kids) if pack is not None else 1
        return str(total), "", ""

    # -- what the caller asks beside the text

    def short(self, root: _Node) -> str:
        name = root.kids[0]
        template = _template_of(name)
        if template is not None:
            self.scope = self.push(template.kids[1:], template)
        text = self.short_name(name, 0)
        self.scope = None
        return text

    def short_name(self, name: _Node, level: int) -> str:
        base = _base(name)
        if base.op == "operator" and base.text == "operator()" and level < 50:
            entity = name
            chain = []
            # Unwrap to the scope of the operator, remembering the functions passed on the way.
            while entity.op in ("local", "template", "tagged"):
                if entity.op == "local":
                    chain.append(entity.kids[0])
                    entity = entity.kids[1]
                else:
                    entity = entity.kids[0]
            if entity.op == "qualified" and _base(entity.kids[0]).op == "lambda":
                scope = entity.kids[0]
                while scope.op in ("local", "template", "tagged"):
                    if scope.op == "local":
                        chain.append(scope.kids[0])
                        scope = scope.kids[1]
                    else:
                        scope = scope.kids[0]
                if scope.op == "qualified":
                    owner = self.short_name(scope.kids[0], level + 1)
                elif chain and chain[-1].op == "encoding":
                    owner = self.short_name(chain[-1].kids[0], level + 1)
                else:
                    return "lambda"
                return owner if owner.endswith("::lambda") else owner + "::lambda"
        return self.text(base)

    def parameters(self, root: _Node) -> list[tuple[str, str]]:
        """Type and kind of each parameter, packs expanded."""
        name, function = root.kids
        template = _template_of(name)
        if template is not None:
            self.scope = self.push(template.kids[1:], template)
        found: list[tuple[str, str]] = []
        total = 0
        for node in function.kids[1:]:
            pattern, times = node, 1
            pack = self.pack_of(node.kids[0]) if node.op == "expansion" else None
            if pack is not None:
                pattern, times = node.kids[0], len(pack.kids)
            for element in range(times):
                self.element = None if pack is None else element
                text = self.text(pattern)
                total += len(text)
                if total > _MAX_TEXT:
                    text = text[: max(0, len(text) - (total - _MAX_TEXT))] + "…"
                found.append((text, self.kind(pattern)))
                if len(found) > _MAX_PARAMETERS:
                    raise _GiveUpError
        self.element = None
        return found

    def kind(self, node: _Node) -> str:
        before = self.scope, self.element
        result = "enum_or_class"
        while True:
            if node.op == "parameter":
                found = self.argument(node)
                if found is None:
                    break
                node, self.scope = found
                self.element = None
            elif node.op == "suffix" and node.text not in (" _Complex", " _Imaginary"):
                node = node.kids[0]
            elif node.op == "pointer":
                result = "pointer"
                break
            elif node.op == "reference":
                result = "reference"
                break
            else:
                result = _KINDS.get(self.text(node), result)
                break
        self.scope, self.element = before
        return result


_LITERAL_OF = {_TYPES[code]: suffix for code, suffix in _LITERAL_SUFFIX.items()}

_RENDER: dict[str, Callable[[_Renderer, _Node], _Out]] = {
    "array": _Renderer.array,
    "binary": _Renderer.binary,
    "binding": _Renderer.binding,
    "braces": _Renderer.braces,
    "builtin": _Renderer.plain,
    "call": _Renderer.call,
    "call_like": _Renderer.call_like,
    "cast": _Renderer.cast,
    "conditional": _Renderer.conditional,
    "construction": _Renderer.construction,
    "constructor": _Renderer.special,
    "conversion": _Renderer.conversion,
    "count": _Renderer.count,
    "declared": _Renderer.declared,
    "decltype": _Renderer.decltype,
    "encoding": _Renderer.encoding,
    "expansion": _Renderer.expansion,
    "fold": _Renderer.fold,
    "function": _Renderer.function,
    "global": _Renderer.global_name,
    "index": _Renderer.index,
    "lambda": _Renderer.closure,
    "list": _Renderer.comma_list,
    "literal": _Renderer.literal,
    "local": _Renderer.local,
    "member": _Renderer.member,
    "name": _Renderer.plain,
    "named_cast": _Renderer.named_cast,
    "new": _Renderer.new,
    "noexcept": _Renderer.noexcept,
    "nothing": _Renderer.plain,
    "operator": _Renderer.plain,
    "pack": _Renderer.pack,
    "parameter": _Renderer.parameter,
    "pointer": _Renderer.pointer,
    "postfix": _Renderer.postfix,
    "qualified": _Renderer.qualified,
    "reference": _Renderer.reference,
    "special": _Renderer.special,
    "std": _Renderer.plain,
    "suffix": _Renderer.suffix,
    "tagged": _Renderer.tagged,
    "template": _Renderer.template,
    "this": _Renderer.plain,
    "unary": _Renderer.unary,
    "unnamed": _Renderer.plain,
    "vector": _Renderer.vector,
    "vendor": _Renderer.vendor,
    "vendor_type": _Renderer.vendor_type,
}
