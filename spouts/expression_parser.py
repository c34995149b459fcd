"""Reads expressions as users write them into trees (:mod:`dskype.spouts.expression`).

By falling strength: ``NOT``, ``AND``, ``OR`` (in any case), and parentheses. Operands are::

    coffee   "late night"   "late night"~3   muse*   title:coffee   title:(coffee OR tea)
    ATLEAST 2 OF (coffee, tea, cake AND cream)
    price < 200   100 <= price <= 200   category = "cafe"   category != bar   category IN (cafe, bar)   tags HAS vegan   exists(url)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from dskype.spouts.attributes import Attribute, Attributes
from dskype.spouts.expression import PREFIX_LENGTHS, Expression, join
from dskype.spouts.text import Tokenizer, cut, without_ignored
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["WORDS_ONLY", "ExpressionError", "Language", "of_keywords", "parse"]

_LEXEMES = re.compile(r'\s+|[(),]|"[^"]*"?|<=|>=|!=|[<>]|=+|(?:[^\s()",<>=!]|!(?!=))+')

_QUOTES = frozenset("“”„‟«»〝〞〟「」『』")
"""What keyboards and word processors write for a double quote."""

_MINUS = frozenset("-!~¬−⁻₋˗∼")
"""What stands for NOT before a word in other query languages, beside all dashes (Pd)."""

_OPERATORS = {"&": "AND", "&&": "AND", "∧": "AND", "⋀": "AND", "∩": "AND", "|": "OR", "||": "OR", "∨": "OR", "⋁": "OR", "∪": "OR"}
_COMPARED = {"≤": "<=", "≥": ">=", "≠": "!=", "==": "="}

_COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}

_LEGAL = "words, quoted phrases, AND, OR, NOT, parentheses"

_SIGNS = re.compile(r"^\+|[*?~^|\\]|&&")
"""Signs of other query languages in a word; others are found by their category: brackets, mathematical signs, and a colon after a letter."""

_SIGN_HINTS = {
    "+": "join words that must all occur by AND",
    "*": "an asterisk stands at the end of a word only, after at least two letters",
    "?": "words are compared whole; join the forms that you mean by OR",
    "~": "words are compared whole; a distance follows a phrase in quotes",
    "^": "all words of an expression count alike",
}

_PREFIX_MIN, _PREFIX_MAX = PREFIX_LENGTHS
_WITHIN_MAX = 100
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PLACEHOLDER = re.compile(r"(?:^|(?<=\s))_(?=\s|$)")


class ExpressionError(IllegalArgumentException):
    """A text is not an expression.

    :ivar position: where it goes wrong, in characters, from 1.
    """

    def __init__(self, expected: str, position: int, *, given: Any, legal: str | None = None, hint: str | None = None) -> None:
        shown = given[:57] + "..." if isinstance(given, str) and len(given) > 60 else given
        super().__init__(explain(f"Expected {expected} at position {position} of the expression", given=shown, legal=legal, hint=hint))
        self.position = position


class Language(NamedTuple):
    """What expressions may speak of, and how far they may go.

    :ivar attributes: those that the topology declares.
    :ivar fields: names of the fields of a text; with fewer than two an expression is about the whole text.
    :ivar prefixes: whether there may be prefixes (``dskype.boolean.prefixes``).
    :ivar wordless: whether a message may satisfy an expression by something that is no word (``dskype.boolean.wordless``).
    :ivar max_depth: how many parentheses and NOT may be open at once.
    :ivar max_terms: how many words, prefixes, values and EXISTS there may be, repetitions included.
    """

    attributes: Attributes = Attributes()
    fields: tuple[str, ...] = ()
    prefixes: bool = False
    wordless: bool = False
    max_depth: int = 16
    max_terms: int = 256


WORDS_ONLY = Language()
"""The language of a topology without attributes, fields and prefixes."""


class _Lexeme(NamedTuple):
    """A part of the text: ``first`` and ``end`` in the folded text, ``position`` in the one that was given, from 1."""

    text: str
    first: int
    end: int
    position: int
    given: str

    @property
    def word(self) -> str:
        return self.text.upper()


def parse(text: str, tokenizer: Tokenizer, language: Language = WORDS_ONLY) -> Expression:
    """Read an expression.

    A phrase, or a word that the tokenizer cuts (``wi-fi``), asks for its words in this order, one right after the other. A stop word in it
    stands for any word, as does a lone ``_``. The result is simplified: no AND directly inside an AND, no OR directly inside an OR, and no
    operand twice.

    Full-width characters count as their ASCII ones, typographic double quotes as ``"``, and invisible characters as nothing. Signs
    that have a meaning in other query languages (``-tea``, ``te*a``, ``[a]``) are refused outside quotes, for the tokenizer would drop them.

    :raises ExpressionError: the text is not an expression, is too deep or too long, or has a word that consists of stop words.

    >>> parse('Coffee AND (wifi OR "late night")', Tokenizer())
    ['and', 'coffee', ['or', 'wifi', ['phrase', 0, [0, 1], ['late', 'night']]]]
    >>> parse("tea and not (price >= 5)", Tokenizer(), Language(Attributes.from_conf({"price": "number"})))
    ['and', 'tea', ['not', ['attribute', 'price', '>=', 5.0]]]
    """
    return _Parser(text, tokenizer, language).whole()


def of_keywords(texts: Iterable[str], tokenizer: Tokenizer) -> Expression:
    """Return the expression that requires all keywords, each of which has a word. Where fields have different words for one, it has to be in one of them.

    >>> of_keywords(["late coffee", "late"], Tokenizer())
    ['and', 'late', 'coffee']
    """
    each = []
    for text in texts:
        made = [(field, analyzer.tokens(text)) for field, analyzer in tokenizer.by_field(None)]
        each.append(join("or", [join("and", [word if field is None else ["in", field, word] for word in words]) for field, words in made if words]))
    return join("and", each)


class _Parser:
    """Reads one text by recursive descent: alternatives, factors, operands."""

    def __init__(self, text: str, tokenizer: Tokenizer, language: Language) -> None:
        self._text, self._tokenizer, self._language = text, tokenizer, language
        plain, self._at = _plain(text)
        self._unread = _LEXEMES.finditer(plain)
        self._lexemes: list[_Lexeme] = []
        self._next = 0
        self._depth = 0
        self._count = 0
        self._field: str | None = None

    # -- lexemes --------------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> _Lexeme | None:
        """Return a lexeme; read no further than that, because the rest of a text that is refused can be long."""
        at = self._next + ahead
        while at >= len(self._lexemes):
            match = next(self._unread, None)
            if match is None:
                return None
            if not match[0].isspace():
                first, end = match.span()
                position = self._at[first]
                self._lexemes.append(_Lexeme(_COMPARED.get(match[0], match[0]), first, end, position, self._text[position - 1 : self._at[end - 1]]))
        return self._lexemes[at]

    def _is(self, text: str, ahead: int = 0) -> bool:
        found = self._peek(ahead)
        return found is not None and found.word == text

    def _take(self) -> _Lexeme:
        self._next += 1
        return self._lexemes[self._next - 1]

    def _adjoins(self, before: _Lexeme) -> _Lexeme | None:
        """Return the next lexeme if nothing stands between it and the one before."""
        found = self._peek()
        return found if found is not None and found.first == before.end else None

    def _refuse(self, expected: str, lexeme: _Lexeme | None = None, *, legal: str | None = None, hint: str | None = None) -> NoReturn:
        """Refuse a lexeme, or the end of the text."""
        if lexeme is None:
            raise ExpressionError(expected, len(self._text) + 1, given=self._text, legal=legal, hint=hint)
        raise ExpressionError(expected, lexeme.position, given=lexeme.given, legal=legal, hint=hint)

    def _after(self) -> str:
        return f" after {_shorten(self._lexemes[self._next - 1].text)}" if self._next else ""

    def _expect(self, text: str, what: str) -> _Lexeme:
        if not self._is(text):
            self._refuse(f"{what}{self._after()}", self._peek())
        return self._take()

    def _charge(self, terms: int, lexeme: _Lexeme) -> None:
        self._count += terms
        if self._count > self._language.max_terms:
            raise ExpressionError(f"at most {self._language.max_terms} terms", lexeme.position, given=self._count)

    def _open(self, lexeme: _Lexeme) -> None:
        if self._depth >= self._language.max_depth:
            raise ExpressionError(f"at most {self._language.max_depth} open parentheses", lexeme.position, given=self._depth + 1)
        self._depth += 1

    # -- structure ------------------------------------------------------------------------------------------------------

    def whole(self) -> Expression:
        """Read all of the text."""
        found = self._alternatives()
        if (left := self._peek()) is not None:
            if left.text == ")":
                self._refuse("no ')' without a '('", left)
            if left.text == ",":
                self._refuse(f"AND or OR{self._after()}", left, hint="a comma separates the parts of a list only")
            self._refuse_neighbour(left)
        return found

    def _refuse_neighbour(self, lexeme: _Lexeme) -> NoReturn:
        if lexeme.text in _COMPARISONS:
            self._refuse_comparison(lexeme)
        if lexeme.text in _OPERATORS:
            self._refuse("AND or OR in letters", lexeme, hint=f"write {_OPERATORS[lexeme.text]}")
        if _negates(lexeme):
            self._refuse_minus(lexeme)
        hint = "write AND NOT" if lexeme.word == "NOT" else "a phrase needs quotes"
        self._refuse(f"AND or OR{self._after()}", lexeme, hint=hint)

    def _alternatives(self) -> Expression:
        found = [self._factors()]
        while self._is("OR"):
            self._take()
            found.append(self._factors())
        return join("or", found)

    def _factors(self) -> Expression:
        found = [self._factor()]
        while self._is("AND"):
            self._take()
            found.append(self._factor())
        return join("and", found)

    def _factor(self) -> Expression:
        lexeme = self._peek()
        if lexeme is None:
            self._refuse(f"a word, a quoted phrase or '('{self._after()}" if self._next else "a word or a quoted phrase")
        if lexeme.word == "NOT":
            self._open(self._take())
            negated = self._factor()
            self._depth -= 1
            return negated[1] if isinstance(negated, list) and negated[0] == "not" else ["not", negated]
        if lexeme.text in _OPERATORS:
            self._refuse("AND or OR in letters", lexeme, hint=f"write {_OPERATORS[lexeme.text]}")
        if lexeme.word in ("AND", "OR") or lexeme.text in (")", ",") or lexeme.text in _COMPARISONS:
            hint = "put the word in quotes to search for it" if lexeme.word in ("AND", "OR") else None
            self._refuse(f"a word, a quoted phrase or '('{self._after()}", lexeme, hint=hint)
        if lexeme.text == "(":
            return self._group()
        return self._operand()

    def _group(self) -> Expression:
        opened = self._take()
        self._open(opened)
        found = self._alternatives()
        self._close(opened)
        return found

    def _close(self, opened: _Lexeme) -> None:
        """Read the ')' for a '('."""
        if self._peek() is None:
            raise ExpressionError("a ')' for the '('", opened.position, given=self._text)
        if not self._is(")"):
            left = self._take()
            self._next -= 1
            if left.text == ",":
                self._refuse(f"AND or OR{self._after()}", left, hint="a comma separates the parts of a list only")
            self._refuse_neighbour(left)
        self._take()
        self._depth -= 1

    def _operand(self) -> Expression:
        lexeme = self._lexemes[self._next]
        following = self._peek(1)
        if lexeme.word == "ATLEAST" and following is not None and following.text.isdecimal() and self._is("OF", 2):
            return self._at_least()
        if lexeme.word == "EXISTS" and following is not None and following.text == "(":
            return self._exists()
        if following is not None and (following.text in _COMPARISONS or following.word in ("IN", "HAS")):
            if following.text in _COMPARISONS or lexeme.text in self._language.attributes:
                return self._comparison()
            if following.word == "IN" and self._is("(", 2):
                self._refuse_comparison(lexeme)
        self._take()
        if lexeme.text[0] == '"':
            return self._phrase(lexeme)
        return self._word(lexeme)

    def _at_least(self) -> Expression:
        self._take()
        number = self._take()
        self._take()
        opened = self._expect("(", "'('")
        self._open(opened)
        found = [self._alternatives()]
        while self._is(","):
            self._take()
            found.append(self._alternatives())
        self._close(opened)
        n = int(number.text) if len(number.text) < 10 else 0
        if not 1 <= n <= len(found):
            self._refuse(f"a number from 1 to {len(found)} after ATLEAST, for a list of {len(found)}", number)
        if n in (1, len(found)):
            return join("or" if n == 1 else "and", found)
        return ["atleast", n, *found]

    # -- words ----------------------------------------------------------------------------------------------------------

    def _phrase(self, lexeme: _Lexeme) -> Expression:
        text = lexeme.text
        if len(text) == 1 or text[-1] != '"':
            self._refuse("a closing quote for the one", lexeme)
        within = 0
        if (distance := self._adjoins(lexeme)) is not None and distance.text[0] == "~":
            self._take()
            within = int(distance.text[1:]) if re.fullmatch(r"~\d{1,3}", distance.text, re.ASCII) else -1
            if not 0 <= within <= _WITHIN_MAX:
                self._refuse("how many other words may stand between those of the phrase", distance, legal=f"~0 to ~{_WITHIN_MAX}")
        return self._analyzed(lexeme, lambda analyzer: _phrase_positions(analyzer, text[1:-1]), within)

    def _analyzed(self, lexeme: _Lexeme, positions: Callable[[Tokenizer], list[tuple[str, int]]], within: int = 0) -> Expression:
        """Return the expression of the words of a lexeme, as one field or another has them.

        :param positions: returns the words that an analyzer makes, and their places.
        """
        made = [(field, found) for field, analyzer in self._tokenizer.by_field(self._field) if (found := positions(analyzer))]
        if not made:
            hint = "emoji and other signs are no words" if any(unicodedata.category(c)[0] == "S" for c in lexeme.text) else None
            self._refuse("a word with letters or digits that is not a stop word", lexeme, hint=hint)
        if lexeme.text[0] != '"':
            self._refuse_signs(lexeme)
        leaves: list[Expression] = []
        for field, found in made:
            self._charge(len(found), lexeme)
            words, places = [word for word, _ in found], [place - found[0][1] for _, place in found]
            leaf: Expression = ["phrase", within, places, words] if len(words) > 1 else words[0]
            leaves.append(leaf if field is None else ["in", field, leaf])
        return join("or", leaves)

    def _word(self, lexeme: _Lexeme) -> Expression:
        if _negates(lexeme):
            self._refuse_minus(lexeme)
        name, colon, rest = lexeme.text.partition(":")
        if colon and name in self._language.fields and len(self._language.fields) > 1:
            return self._in_field(lexeme, name, rest)
        if lexeme.text.endswith("*") and self._language.prefixes:
            return self._prefix(lexeme)
        return self._analyzed(lexeme, lambda analyzer: analyzer.positions(lexeme.text))

    def _in_field(self, lexeme: _Lexeme, name: str, rest: str) -> Expression:
        if self._field is not None:
            self._refuse("one field at a time", lexeme)
        self._field = name
        if rest:
            first = lexeme.first + len(name) + 1
            found = self._word(lexeme._replace(text=rest, first=first, position=self._at[first]))
        elif (following := self._adjoins(lexeme)) is not None and following.text == "(":
            found = self._group()
        elif following is not None and following.text[0] == '"':
            found = self._phrase(self._take())
        else:
            self._refuse(f"a word, a quoted phrase or '(' right after {lexeme.text!r}", following or self._peek())
        self._field = None
        return found

    def _prefix(self, lexeme: _Lexeme) -> Expression:
        begun = cut(lexeme.text[:-1])
        if len(begun) != 1 or not _PREFIX_MIN <= len(begun[0]) <= _PREFIX_MAX:
            self._refuse(f"one word of {_PREFIX_MIN} to {_PREFIX_MAX} letters before '*'", lexeme)
        self._refuse_signs(lexeme._replace(text=lexeme.text[:-1]))
        self._charge(1, lexeme)
        leaf = ["prefix", begun[0]]
        return leaf if self._field is None else ["in", self._field, leaf]

    def _refuse_minus(self, lexeme: _Lexeme) -> NoReturn:
        self._refuse("no sign for negation", lexeme, legal=_LEGAL, hint="write NOT, or put the word in quotes to search for it")

    def _refuse_signs(self, lexeme: _Lexeme) -> None:
        """Refuse a word with a sign that the tokenizer would drop although it means something in other query languages."""
        word = lexeme.text
        found = _SIGNS.search(word)
        sign, place = (found[0], found.start()) if found else ("", len(word))
        for i, character in enumerate(word[:place]):
            category = unicodedata.category(character)
            if category in ("Ps", "Pe") or (category == "Sm" and character != "+") or (character == ":" and i and word[i - 1].isalpha()):
                sign, place = character, i
                break
        if not sign:
            return
        legal = _LEGAL
        if sign in _OPERATORS:
            hint = f"write {_OPERATORS[sign]}, with spaces around it"
        elif sign == ":":
            hint = "there are no fields: an expression is about the whole text"
            if len(self._language.fields) > 1:
                hint, legal = "another field, or a word in quotes", f"the fields {', '.join(self._language.fields)}"
        elif sign == "*" and not self._language.prefixes:
            hint = "words are compared whole: dskype.boolean.prefixes is off; join the forms that you mean by OR"
        else:
            hint = _SIGN_HINTS.get(sign) or ("use ( and )" if unicodedata.category(sign[0]) in ("Ps", "Pe") else "such a sign is no part of a word")
        at = self._at[lexeme.first + place]
        raise ExpressionError(f"no {sign!r} in a word", at, given=lexeme.given, legal=legal, hint=f"{hint}; in quotes, signs only separate words")

    # -- attributes -----------------------------------------------------------------------------------------------------

    def _refuse_comparison(self, lexeme: _Lexeme) -> NoReturn:
        names = ", ".join(self._language.attributes)
        hint = None if names else "dskype.attributes declares none; to search for words, put them in quotes"
        self._refuse("the name of an attribute to compare", lexeme, legal=names or None, hint=hint)

    def _comparison(self) -> Expression:
        left = self._take()
        op = self._take()
        if left.text in self._language.attributes:
            return self._compare(self._language.attributes[left.text], op)
        name = self._peek()
        if name is None or name.text not in self._language.attributes:
            unknown = name if name is not None and (_NUMBER.fullmatch(left.text) or left.text[0] == '"') else left
            self._refuse_comparison(unknown)
        attribute = self._language.attributes[self._take().text]
        mirrored = op._replace(text=_MIRRORED[op.text])
        found = self._compared(attribute, mirrored, left)
        second = self._peek()
        if second is None or second.text not in _COMPARISONS:
            return found
        self._take()
        if second.text[0] not in "<>" or second.text[0] != op.text[0]:
            legal, hint = (
                (f"{op.text[0]}, {op.text[0]}=", None) if op.text[0] in "<>" else (None, f"a range has < or > on both sides: 1 < {attribute.name} <= 5")
            )
            self._refuse(f"a comparison in the same direction as {op.text!r}", second, legal=legal, hint=hint)
        return join("and", [found, self._compare(attribute, second)])

    def _compare(self, attribute: Attribute, op: _Lexeme) -> Expression:
        """Read what follows an attribute and a comparison, IN or HAS."""
        if op.word != "IN":
            return self._compared(attribute, op, self._value(attribute))
        opened = self._expect("(", "'('")
        values = [self._checked(attribute, op, self._value(attribute))]
        while self._is(","):
            self._take()
            values.append(self._checked(attribute, op, self._value(attribute)))
        if not self._is(")"):
            if self._peek() is None:
                raise ExpressionError("a ')' for the '('", opened.position, given=self._text)
            self._refuse(f"',' or ')'{self._after()}", self._peek())
        self._take()
        return ["attribute", attribute.name, "in", *dict.fromkeys(values)]

    def _value(self, attribute: Attribute) -> _Lexeme:
        if (found := self._peek()) is None or found.text in ("(", ")", ",") or found.text in _COMPARISONS:
            self._refuse(f"a value for {attribute.name!r}{self._after()}", found, legal=Attribute.LEGAL[attribute.type])
        return self._take()

    def _compared(self, attribute: Attribute, op: _Lexeme, value: _Lexeme) -> Expression:
        return ["attribute", attribute.name, op.text.lower(), self._checked(attribute, op, value)]

    def _checked(self, attribute: Attribute, op: _Lexeme, lexeme: _Lexeme) -> Any:
        """Return the value that a lexeme stands for, if the comparison makes sense for the attribute."""
        ordered, textual = attribute.type in ("number", "time"), attribute.is_textual()
        legal = ("HAS", "IN") if attribute.type == "strings" else ("=", "!=", *(_COMPARISONS[:4] if ordered else ()), "IN")
        if op.word not in legal:
            self._refuse(f"another comparison for {attribute.name!r}, which is a {attribute.type}", op, legal=", ".join(legal))
        self._charge(1, lexeme)
        quoted = lexeme.text[0] == '"'
        if quoted and (len(lexeme.text) == 1 or lexeme.text[-1] != '"'):
            self._refuse("a closing quote for the one", lexeme)
        if textual:
            return self._exact(lexeme) if quoted else lexeme.given
        value: Any = lexeme.text[1:-1] if quoted else lexeme.text
        if attribute.type == "boolean":
            value = {"true": True, "false": False}.get(value.lower())
        elif _NUMBER.fullmatch(value) and not quoted:
            value = float(value)
        number = attribute.number(value)
        if number is None:
            self._refuse(f"a value for {attribute.name!r}, which is a {attribute.type}", lexeme, legal=Attribute.LEGAL[attribute.type])
        return value if attribute.type == "boolean" else number

    def _exact(self, lexeme: _Lexeme) -> str:
        """Return what stands between quotes, as it was written: values are compared exactly."""
        return self._text[lexeme.position : self._at[lexeme.end - 1] - 1]

    def _exists(self) -> Expression:
        self._take()
        self._take()
        name = self._peek()
        if name is None or name.text not in self._language.attributes:
            self._refuse_comparison(name if name is not None else self._lexemes[-1])
        self._charge(1, self._take())
        self._expect(")", "')'")
        return ["attribute", name.text, "exists"]


def _phrase_positions(analyzer: Tokenizer, text: str) -> list[tuple[str, int]]:
    """Return the words of a phrase and their places, in which a lone ``_`` counts as a word."""
    found: list[tuple[str, int]] = []
    passed = 0
    for i, segment in enumerate(_PLACEHOLDER.split(text)):
        passed += i > 0
        found += [(word, passed + place) for word, place in analyzer.positions(segment)]
        passed += len(analyzer.spaced(segment).split())
    return found


def _negates(lexeme: _Lexeme) -> bool:
    return lexeme.text[0] in _MINUS or unicodedata.category(lexeme.text[0]) == "Pd"


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with ASCII for what only looks otherwise, and where each of its characters stood, from 1. O(length)."""
    if text.isascii():
        return text, range(1, len(text) + 1)
    plain, at = [], []
    for position, character in enumerate(text, 1):
        if not character.isascii():
            if not without_ignored(character):
                continue
            if character in _QUOTES:
                character = '"'
            elif character == "\u200b":
                character = " "
            elif len(normal := unicodedata.normalize("NFKC", character)) == 1 and normal.isascii():
                character = normal
        plain.append(character)
        at.append(position)
    return "".join(plain), at


def _shorten(part: str) -> str:
    return repr(part if len(part) <= 40 else part[:37] + "...")
