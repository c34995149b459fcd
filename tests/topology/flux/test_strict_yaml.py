"""Untrusted YAML: what is accepted, and what is refused."""

from __future__ import annotations

from math import inf

import pytest

from dskype.topology.flux import FluxException, Limits
from dskype.topology.flux.strict_yaml import parse


def test_plain_data_is_read() -> None:
    text = "---\nname: words\nconfig: {topology.workers: 2, rate: 0.5, on: yes, none: ~}\nlist:\n  - a\n  - [1, '2']\n"
    assert parse(text) == {"name": "words", "config": {"topology.workers": 2, "rate": 0.5, True: True, "none": None}, "list": ["a", [1, "2"]]}


def test_dates_stay_strings_because_a_configuration_is_json() -> None:
    assert parse("a: 2024-01-01\nb: 2024-01-01 10:00:00") == {"a": "2024-01-01", "b": "2024-01-01 10:00:00"}


def test_anchors_and_merge_keys_are_read_and_own_keys_win() -> None:
    text = "base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\nagain: *b"
    assert parse(text) == {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}, "again": {"x": 1, "y": 2}}


def test_an_empty_document_is_none() -> None:
    assert parse("# nothing\n") is None


TAGGED = [
    "!!python/object/apply:os.system ['echo pwned']",
    "a: !!python/object/apply:subprocess.Popen [[touch, pwned]]",
    "a: !!python/object/new:os.system [echo]",
    "a: !!python/name:os.system",
    "a: !!python/module:os",
    "a: !!python/tuple [1, 2]",
    "!!javax.script.ScriptEngineManager [!!java.net.URLClassLoader [[!!java.net.URL ['http://x/']]]]",
    "!!GeoFlink.utils.ConfigType {a: 1}",
    "a: !custom 1",
    "a: !!str 1",
    "a: ! 1",
    "? !!str a\n: 1",
    "%TAG !e! tag:yaml.org,2002:python/\n---\na: !e!name:os.system",
]


@pytest.mark.parametrize("text", TAGGED)
def test_every_tag_is_refused(text: str) -> None:
    with pytest.raises(FluxException, match=r"line \d+, column \d+: YAML tags are not allowed. given: '"):
        parse(text)


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    with pytest.raises(FluxException, match=r"^f.yaml, line 3, column 1: duplicate key 'bolts'. hint: the first is in line 1$"):
        parse("bolts: []\nname: x\nbolts: []\n", "f.yaml")


def test_a_key_that_is_a_list_or_a_map_is_refused() -> None:
    for text in ("? [1, 2]\n: x", "{a: 1}: x"):
        with pytest.raises(FluxException, match="a key must be a scalar"):
            parse(text)


def test_an_alias_bomb_is_refused_before_it_is_built() -> None:
    levels = "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(12))
    with pytest.raises(FluxException, match="too many values, aliases expanded. legal: at most 100000"):
        parse("a0: &a0 [x]\n" + levels)


def test_a_bomb_of_merge_keys_is_refused_too() -> None:
    levels = "".join(f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 10)}]}}\n" for i in range(12))
    with pytest.raises(FluxException, match="too many values, aliases expanded"):
        parse("a0: &a0 {x: 1}\n" + levels)


def test_an_alias_that_contains_itself_is_refused() -> None:
    for text in ("a: &a [*a]", "&r {a: {b: *r}}"):
        with pytest.raises(FluxException, match="an alias contains itself"):
            parse(text)


@pytest.mark.long
@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 5_000 + "x", "{a: " * 200 + "}" * 200])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FluxException, match="nested too deeply. legal: at most 50 levels"):
        parse(text)


def test_a_large_text_is_refused_by_its_size_in_bytes() -> None:
    with pytest.raises(FluxException, match="too large. given: '22 bytes'; legal: at most 20 bytes"):
        parse("a: " + "é" * 9 + "x", limits=Limits(bytes=20))


def test_a_long_list_without_aliases_is_bounded_by_the_number_of_values() -> None:
    assert len(parse("[" + "1," * 90 + "1]", limits=Limits(nodes=100))) == 91
    with pytest.raises(FluxException, match="too many values"):
        parse("[" + "1," * 110 + "1]", limits=Limits(nodes=100))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b: c", "line 1, column 5: not YAML"),
        ("a: [1", "not YAML"),
        ("a: *nope", "undefined alias"),
        ("a: \x00", "not YAML"),
        ("--- 1\n--- 2", "but found another document"),
        ("a: " + "9" * 5000, "a value cannot be read"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(FluxException) as caught:
        parse(text, "f.yaml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("f.yaml")


def test_an_error_never_quotes_the_file() -> None:
    with pytest.raises(FluxException) as caught:
        parse("root:x:0:0:secret\nother: [")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1E3", 1000.0),
        ("+1e3", 1000.0),
        ("1_0e-1", 1.0),
        ("1.5e3", 1500.0),
        ("1.e3", 1000.0),
        ("-.5", -0.5),
        (".5e1", 5.0),
        ("1.5e+3", 1500.0),
        ("1.", 1.0),
        ("1:30.5", 90.5),
        ("-.inf", -inf),
        ("0x_1f", 31),
        ("0b_11", 3),
        ("0_17", 15),
        ("017", 15),
        ("1_000", 1000),
        ("1:30", 90),
        ("-0", 0),
        ("08", "08"),
        ("0b_", "0b_"),
        ("0x_", "0x_"),
        ("0_", "0_"),
        ("._5", "._5"),
        ("1e", "1e"),
        ("e3", "e3"),
        ("1e3x", "1e3x"),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ("-", "-"),
        ("\u0661", "\u0661"),
        ("'1e3'", "1e3"),
    ],
)
def test_numbers_are_what_snakeyaml_takes_for_numbers(text, value):
    found = parse(f"a: {text}") if text != "-" else {"a": parse('"-"')}
    assert found == {"a": value} and type(found["a"]) is type(value)
