"""Placeholders and Java properties."""

from __future__ import annotations

import pytest

from dskype.topology.flux import FluxException
from dskype.topology.flux.substitution import parse_properties, substitute

PROPS = {"name": "words", "n": "3", "list": '["a", "b b", 7]', "bare": "[x, 'y']", "ENV-HOME": "from the file"}


def test_all_placeholders_of_a_line_are_replaced() -> None:
    assert substitute("{a: ${n}, b: ${name}-${n}}", PROPS) == ("{a: 3, b: words-3}", [])


def test_an_element_of_a_list_is_replaced() -> None:
    text = "${list[0]} ${list[1]} ${list[2]} ${bare[0]} ${bare[1]}"
    assert substitute(text, PROPS)[0] == "a b b 7 x y"


def test_an_element_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FluxException, match=r"There is no element list\[3\].*legal: an index from 0 to 2"):
        substitute("${list[3]}", PROPS)
    with pytest.raises(FluxException, match=r"There is no element name\[0\]"):
        substitute("${name[0]}", PROPS)


def test_a_placeholder_without_a_value_stays_and_is_warned_about() -> None:
    text, warnings = substitute("a: 1\nb: ${nope}\n", PROPS)
    assert text == "a: 1\nb: ${nope}\n"
    assert warnings == ["Could not find replacement for property: nope (line 2)"]


def test_a_comment_without_properties_is_no_trouble() -> None:
    assert substitute("# use ${this}\na: 1") == ("# use ${this}\na: 1", [])


def test_environment_variables_are_replaced_only_when_asked_for() -> None:
    assert substitute("${ENV-USER}", {}, {"USER": "ann"}) == ("ann", [])
    text, warnings = substitute("${ENV-USER}", {})
    assert text == "${ENV-USER}"
    assert "use -e to replace environment variables" in warnings[0]


def test_without_the_environment_a_property_of_that_name_is_used() -> None:
    assert substitute("${ENV-HOME}", PROPS)[0] == "from the file"


def test_a_replacement_is_not_looked_through_again() -> None:
    assert substitute("${a}", {"a": "${b}", "b": "x"})[0] == "${b}"


def test_java_properties_are_read_with_all_separators_comments_and_escapes() -> None:
    text = (
        "# comment\n! comment\n\n"
        "a=1\nb = 2\nc:3\nd 4\ne\\ f=5\ng\\=h=6\n"
        "long=one \\\n    two \\\n    three\n"
        "empty=\nalone\n   indented=x  \n"
        "tab=a\\tb\nuni=\\u00e9\\uD83D\\uDE00\npath=C:\\\\x\nodd=\\q\n"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "4",
        "e f": "5",
        "g=h": "6",
        "long": "one two three",
        "empty": "",
        "alone": "",
        "indented": "x  ",
        "tab": "a\tb",
        "uni": "é😀",
        "path": "C:\\x",
        "odd": "q",
    }


def test_the_last_of_two_equal_properties_wins() -> None:
    assert parse_properties("a=1\r\na=2\r\n") == {"a": "2"}


def test_a_broken_unicode_escape_is_an_error_with_its_line() -> None:
    with pytest.raises(FluxException, match=r"p, line 2: Malformed \\uxxxx encoding. given: '\\\\u12'"):
        parse_properties("a=1\nb=\\u12", "p")
