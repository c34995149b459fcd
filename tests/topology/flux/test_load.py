"""Tests of the rules of Flux, in twelve groups."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dskype.topology import groupings, testing
from dskype.topology.components import KafkaSpout
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.fields import Fields
from dskype.topology.flux import ClassNotFoundException, FluxException, Registry, default_registry, load
from dskype.topology.flux.storm_compat import Duration, TestClass, TestEnum
from dskype.topology.planning.validation import validate_submission

SAMPLE = "tests.topology.flux.sample"
WORDS = "spouts: [{id: words, className: org.apache.storm.testing.TestWordSpout, parallelism: 2}]\n"
COUNT = "bolts: [{id: count, className: org.apache.storm.testing.TestWordCounter, parallelism: 3}]\n"
STREAM = "streams: [{name: not used, from: words, to: count, grouping: {type: FIELDS, args: [word]}}]\n"
WHOLE = "name: wc\n" + WORDS + COUNT + STREAM


def flux(text: str, **options):
    return load(text + "\n", **options)


def thing(rest: str):
    """Load one component of the sample class ``Thing``."""
    text = f"components: [{{id: t, className: {SAMPLE}.Thing{', ' if rest else ''}{rest}}}]"
    return flux(text, allow_modules=[SAMPLE]).objects["t"]


def refused(text: str, words: str, error: type[Exception] = FluxException, **options) -> str:
    options.setdefault("allow_modules", [SAMPLE])
    with pytest.raises(error) as caught:
        flux(text, **options)
    assert words in str(caught.value)
    return str(caught.value)


def refused_thing(rest: str, words: str) -> str:
    return refused(f"components: [{{id: t, className: {SAMPLE}.Thing, {rest}}}]", words)


# --- F1: keys and ids -------------------------------------------------------------------------------------------------


def test_a_whole_file_becomes_a_topology() -> None:
    loaded = flux(WHOLE + "config: {topology.workers: 2, my.own: [1, {a: b}]}")
    assert (loaded.name, loaded.config) == ("wc", {"topology.workers": 2, "my.own": [1, {"a": "b"}]})
    count = loaded.topology.components["count"]
    assert count.parallelism_hint == 3
    assert count.inputs == {("words", "default"): groupings.FieldsGrouping(Fields("word"))}
    assert isinstance(count.obj, testing.TestWordCounter)
    assert loaded.warnings == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("nmae: x", "Unable to find property 'nmae' in text. given: 'nmae'; legal: name, config"),
        ("spouts: [{id: a, classname: x}]", "Unable to find property 'classname' in spout 'a'"),
        ("bolts: [{id: a, className: x, config: {}, tasks: 1}]", "Unable to find property 'tasks' in bolt 'a'"),
        ("components: [{className: x, parallelism: 1}]", "Unable to find property 'parallelism' in components[0]"),
        ("streams: [{from: a, to: b, via: c, grouping: {type: ALL}}]", "Unable to find property 'via' in streams[0] (a -> b)"),
        ("streams: [{from: a, to: b, grouping: {type: ALL, stream: c}}]", "Unable to find property 'stream' in the grouping of streams[0]"),
        ("includes: [{file: a, path: b}]", "Unable to find property 'path' in includes[0]"),
        ("topologySource: {className: a, method: b}", "Unable to find property 'method' in topologySource"),
        ("components: [{id: a, className: x, properties: [{name: b, val: c}]}]", "Unable to find property 'val' in properties[0] of component 'a'"),
    ],
)
def test_an_unknown_key_is_an_error_wherever_it_stands(text: str, place: str) -> None:
    refused(text, place)


def test_the_error_of_an_unknown_key_offers_a_near_one() -> None:
    assert "did you mean 'className'?" in refused("spouts: [{id: a, classname: x}]", "Unable to find property")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "text is empty"),
        ("just words", "must be a map"),
        ("spouts: {a: 1}", "spouts of text must be a list. given: {'a': 1}"),
        ("spouts: [{className: x}]", "spouts[0] has no id"),
        ("spouts: [{id: x}]", "spout 'x' has no className"),
        ("spouts: [{id: [1], className: x}]", "must be a string"),
        ("spouts: [{id: a, className: x, parallelism: many}]", "parallelism of spout 'a' must be an integer. given: 'many'"),
        ("spouts: [{id: a, className: x, parallelism: '-+2'}]", "parallelism of spout 'a' must be an integer. given: '-+2'"),
        ("spouts: [{id: a, className: x, cpuLoad: lots}]", "cpuLoad of spout 'a' must be a number"),
        ("config: [1]", "config of text must be a map"),
        ("streams: [{from: a, to: b}]", "has no grouping"),
        ("streams: [{from: a, grouping: {type: ALL}}]", "has no to"),
        ("includes: [{file: a, override: maybe}]", "override of includes[0] must be true or false"),
    ],
)
def test_a_missing_key_or_a_value_of_another_type_is_an_error(text: str, words: str) -> None:
    refused(text, words)


def test_of_two_definitions_with_one_id_the_last_wins() -> None:
    loaded = flux("spouts: [{id: s, className: dskype.TestPlannerSpout}, {id: s, className: dskype.TestWordSpout}]")
    assert isinstance(loaded.topology.components["s"].obj, testing.TestWordSpout)


def test_a_spout_and_a_bolt_with_one_id_are_refused_as_by_the_builder() -> None:
    text = WORDS + "bolts: [{id: words, className: dskype.TestWordCounter}]\nstreams: [{from: words, to: words, grouping: {type: ALL}}]"
    refused(text, "Spout has already been declared for id words", IllegalArgumentException)


def test_ids_and_parallelism_may_be_numbers_or_strings_as_with_java_beans() -> None:
    loaded = flux(
        "spouts: [{id: 1, className: dskype.TestWordSpout, parallelism: '4'}]\nbolts: [{id: 2, className: dskype.LogInfoBolt}]\nstreams: [{from: 1, to: 2, grouping: {type: ALL}}]"
    )
    assert loaded.topology.components["1"].parallelism_hint == 4
    assert list(loaded.topology.components) == ["1", "2"]


# --- F2: objects ------------------------------------------------------------------------------------------------------


def test_an_object_is_made_then_its_properties_are_set_then_its_methods_called() -> None:
    made = thing("constructorArgs: [5], properties: [{name: speed, value: 2}], configMethods: [{name: withPair, args: [1, x]}]")
    assert made.n == 5
    assert made.calls == [("speed", 2.0), ("pair", 1, "x")]


def test_constructor_arguments_go_before_a_factory() -> None:
    assert thing("constructorArgs: [5], factory: makeStatic, factoryArgs: [7]").n == 5


def test_a_factory_is_a_static_or_a_class_method_with_or_without_arguments() -> None:
    assert thing("factory: makeStatic, factoryArgs: [7, 2]").n == 14
    assert thing("factory: madeByClass, factoryArgs: [7]").n == 70
    made = flux("bolts: [{id: b, className: org.apache.storm.flux.test.TestBolt, factory: newInstance}]").objects["b"]
    assert made.te is TestEnum.FOO


@pytest.mark.parametrize("factory", ["ordinary", "nope", "__init__", "_private", "n"])
def test_what_is_no_factory_is_refused_in_storms_words(factory: str) -> None:
    words = f"Couldn't find a suitable static method '{factory}' for class '{SAMPLE}.Thing' with arguments '[1]'. component: 't'"
    refused_thing(f"factory: {factory}, factoryArgs: [1]", words)


def test_constructor_arguments_may_be_named_beyond_storm() -> None:
    made = thing("constructorArgs: {x: 2, words: [a], colour: GREEN}")
    assert (made.x, made.words, made.colour.name) == (2.0, ["a"], "GREEN")
    refused_thing("constructorArgs: {nope: 1}", "Couldn't find a suitable constructor")
    refused_thing(
        "constructorArgs: {on: 1}",
        "has a key that cannot be a parameter's name. given: True; hint: quote it, because YAML reads on, off, yes and no as booleans",
    )


def test_a_vertex_takes_parallelism_tasks_loads_and_configuration() -> None:
    loaded = flux(
        "spouts: [{id: s, className: dskype.TestWordSpout, parallelism: 2, numTasks: 6, onHeapMemoryLoad: 64, "
        "offHeapMemoryLoad: 32, cpuLoad: 50, config: {my.key: 1}}]"
    )
    spec = loaded.topology.components["s"]
    assert spec.parallelism_hint == 2
    assert spec.conf == {
        "topology.tasks": 6,
        "topology.component.resources.onheap.memory.mb": 64,
        "topology.component.resources.offheap.memory.mb": 32,
        "topology.component.cpu.pcore.percent": 50,
        "my.key": 1,
    }
    assert flux(WORDS).topology.components["words"].conf == {}


def test_a_parallelism_below_one_is_refused() -> None:
    refused("spouts: [{id: s, className: dskype.TestWordSpout, parallelism: 0}]", "Parallelism must be positive.", IllegalArgumentException)


# --- F3: references ---------------------------------------------------------------------------------------------------

PART = f"{{id: p, className: {SAMPLE}.Part, constructorArgs: [wheel]}}"


def with_part(rest: str):
    text = f"components: [{PART}, {{id: t, className: {SAMPLE}.Thing, {rest}}}]"
    return flux(text, allow_modules=[SAMPLE]).objects["t"]


def test_a_reference_is_the_object_itself_everywhere() -> None:
    made = with_part("constructorArgs: {part: {ref: p}, anything: {ref: p}}, properties: [{name: public, ref: p}]")
    assert made.part is made.anything is made.public
    assert made.part.name == "wheel"


def test_a_list_of_references_is_a_list_and_fills_varargs() -> None:
    assert with_part("configMethods: [{name: withParts, args: [{reflist: [p, p]}]}]").calls == [("parts", ["wheel", "wheel"])]
    assert [p.name for p in with_part("constructorArgs: {anything: {reflist: [p]}}").anything] == ["wheel"]


def test_any_other_map_is_a_literal() -> None:
    for literal in ("{ref: p, more: 1}", "{a: {ref: p}}", "{}"):
        made = with_part(f"constructorArgs: {{anything: {literal}}}")
        assert isinstance(made.anything, dict)


def test_an_undefined_reference_is_refused_as_a_null_argument() -> None:
    message = refused_thing("constructorArgs: [1, 2.0, true, {ref: p}]", "argument shouldn't be null - index: 3; given: {'ref': 'p'}")
    assert "a component must be defined before it is referred to" in message
    refused_thing("properties: [{name: part, ref: p}]", "argument shouldn't be null - index: 0")


def test_references_go_backwards_only() -> None:
    refused(f"components: [{{id: t, className: {SAMPLE}.Thing, constructorArgs: [{{ref: p}}]}}, {PART}]", "argument shouldn't be null - index: 0")


def test_inside_a_reflist_an_undefined_reference_is_null() -> None:
    assert with_part("configMethods: [{name: withParts, args: [{reflist: [nope, p]}]}]").calls == [("parts", [None, "wheel"])]


def test_a_property_has_a_value_or_a_reference_not_both() -> None:
    refused_thing("properties: [{name: public, value: 1, ref: p}]", "A property can only have a value OR a reference, not both.")


@pytest.mark.parametrize("bad", ["{ref: [a]}", "{reflist: a}", "{reflist: [[a]]}"])
def test_a_malformed_reference_is_an_error(bad: str) -> None:
    refused_thing(f"constructorArgs: [{bad}]", "given: {'ref")


# --- F4: coercions and errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "attribute", "value"),
    [
        ("{n: 3.0}", "n", 3),
        ("{x: 3}", "x", 3.0),
        ("{flag: true}", "flag", True),
        ("{words: [a, b]}", "words", ["a", "b"]),
        ("{mode: slow}", "mode", "slow"),
        ("{options: {a: 1}}", "options", {"a": 1.0}),
        ("{fields: [a, b]}", "fields", Fields("a", "b")),
        ("{anything: [1, {a: b}]}", "anything", [1, {"a": "b"}]),
        ("{part: null}", "part", None),
    ],
)
def test_a_value_is_coerced_by_the_type_hint(args: str, attribute: str, value) -> None:
    found = getattr(thing(f"constructorArgs: {args}"), attribute)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        ("{n: a}", "parameter 'n': expected int; given: 'a'"),
        ("{n: 1.5}", "expected int; given: 1.5"),
        ("{n: true}", "expected int; given: True"),
        ("{x: true}", "expected float; given: True"),
        ("{flag: 1}", "expected bool; given: 1"),
        ("{words: a}", "expected list[str]; given: 'a'"),
        ("{words: [1]}", "expected str; given: 1"),
        ("{mode: medium}", "expected one of 'fast', 'slow'; given: 'medium'"),
        ("{colour: BLUE}", "No enum constant Colour.BLUE; legal: RED, GREEN"),
        ("{colour: red}", "No enum constant Colour.red"),
        ("{part: wheel}", "expected Part; given: 'wheel'"),
        ("[1,2,3,4,5,6,7,8,9,10,11]", "too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_storms_words(args: str, hint: str) -> None:
    message = refused_thing(f"constructorArgs: {args}", f"Couldn't find a suitable constructor for class '{SAMPLE}.Thing' with arguments '")
    assert hint in message


def test_a_configuration_method_that_does_not_exist_or_fit_is_refused_in_storms_words() -> None:
    for method in ("{name: nope, args: [1]}", "{name: withPair, args: [1]}", "{name: __init__, args: [1]}", "{name: _private}", "{name: n}"):
        name = method.split("name: ")[1].split(",")[0].strip("}")
        refused_thing(f"configMethods: [{method}]", f"Unable to find configuration method '{name}' in class '{SAMPLE}.Thing' with arguments [")


def test_properties_use_a_setter_of_either_spelling_or_an_attribute() -> None:
    made = thing("properties: [{name: speed, value: 1}, {name: likeJava, value: v}, {name: public, value: new}, {name: declared, value: 4}]")
    assert made.calls == [("speed", 1.0), ("java", "v")]
    assert (made.public, made.declared) == ("new", 4)


@pytest.mark.parametrize("name", ["nope", "_private", "__class__", "readOnly", "read_only", "withPair", "with_pair"])
def test_a_property_without_setter_or_attribute_is_no_such_field(name: str) -> None:
    refused_thing(f"properties: [{{name: {name}, value: 1}}]", f"No such field: {name} in class '{SAMPLE}.Thing'. component: 't'")


def test_a_property_of_the_wrong_type_is_refused() -> None:
    refused_thing("properties: [{name: speed, value: fast}]", "Property 'speed' of class")
    refused_thing("properties: [{name: declared, value: x}]", "expected int; given: 'x'")


def test_what_a_users_class_raises_is_reported_with_its_id_and_chained() -> None:
    with pytest.raises(FluxException, match=r"component 't' \(.*Thing\) raised RuntimeError: no fuel") as caught:
        thing("configMethods: [{name: explode}]")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_abstract_class_is_refused_with_what_it_lacks() -> None:
    refused(f"spouts: [{{id: a, className: {SAMPLE}.Abstract}}]", "the class does not define next_tuple")


# --- F5: streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        ("{type: ALL}", groupings.AllGrouping()),
        ("{type: DIRECT}", groupings.DirectGrouping()),
        ("{type: SHUFFLE, args: [ignored]}", groupings.ShuffleGrouping()),
        ("{type: LOCAL_OR_SHUFFLE}", groupings.LocalOrShuffleGrouping()),
        ("{type: GLOBAL}", groupings.GlobalGrouping()),
        ("{type: NONE}", groupings.NoneGrouping()),
        ("{type: FIELDS, args: []}", groupings.FieldsGrouping(Fields())),  # global, as in Storm
        ("{type: FIELDS, args: [a, b]}", groupings.FieldsGrouping(Fields("a", "b"))),
        ("{type: CUSTOM, customClass: {className: dskype.PartialKeyGrouping, constructorArgs: [[word]]}}", groupings.PartialKeyGrouping(Fields("word"))),
    ],
)
def test_each_grouping_type_becomes_the_builders_grouping(grouping: str, expected) -> None:
    text = WORDS + COUNT + f"streams: [{{from: words, to: count, grouping: {grouping}}}]"
    assert flux(text).topology.components["count"].inputs == {("words", "default"): expected}


def test_a_custom_grouping_is_made_from_its_class() -> None:
    text = (
        WORDS
        + COUNT
        + "streams: [{from: words, to: count, grouping: {type: CUSTOM, streamId: s, customClass: {className: org.apache.storm.testing.NGrouping, constructorArgs: [1]}}}]"
    )
    ((key, grouping),) = flux(text).topology.components["count"].inputs.items()
    assert key == ("words", "s")
    assert isinstance(grouping.grouping, testing.NGrouping)


@pytest.mark.parametrize(
    ("grouping", "words"),
    [
        ("{type: shuffle}", "hint: write SHUFFLE"),
        ("{type: PARTIAL_KEY, args: [w]}", "use type CUSTOM with customClass"),
        ("{type: RANDOM}", "given: 'RANDOM'; legal: ALL, CUSTOM, DIRECT, SHUFFLE, LOCAL_OR_SHUFFLE, FIELDS, GLOBAL, NONE"),
        ("{type: FIELDS}", "needs args"),
        ("{type: CUSTOM}", "needs a customClass"),
        ("{args: [a]}", "has no type"),
        ("{type: CUSTOM, customClass: {className: dskype.TestWordCounter}}", "is not a grouping"),
    ],
)
def test_a_grouping_that_is_none_is_refused(grouping: str, words: str) -> None:
    refused(WORDS + COUNT + f"streams: [{{from: words, to: count, grouping: {grouping}}}]", words)


def test_several_streams_to_one_bolt_are_several_inputs_of_one_bolt() -> None:
    text = WORDS + COUNT + "streams:\n- {from: words, to: count, grouping: {type: ALL}}\n- {from: count, to: count, grouping: {type: GLOBAL, streamId: loop}}"
    assert set(flux(text).topology.components["count"].inputs) == {("words", "default"), ("count", "loop")}


def test_a_bolt_that_no_stream_goes_to_is_built_but_left_out() -> None:
    loaded = flux(WORDS + COUNT)
    assert list(loaded.topology.components) == ["words"]
    assert isinstance(loaded.objects["count"], testing.TestWordCounter)
    assert loaded.warnings == ["bolt 'count' is left out of the topology: no stream goes to it"]


def test_a_stream_to_an_unknown_component_or_a_spout_is_a_named_error() -> None:
    refused(
        WORDS + COUNT + "streams: [{from: words, to: cuont, grouping: {type: ALL}}]",
        "streams[0] (words -> cuont) goes to a component that is not defined. given: 'cuont'; legal: count",
    )
    refused(
        WORDS + COUNT + "streams: [{from: words, to: words, grouping: {type: ALL}}]",
        "Class does not appear to be a bolt: org.apache.storm.testing.TestWordSpout",
    )


def test_a_component_of_the_wrong_kind_is_refused() -> None:
    refused("spouts: [{id: s, className: dskype.TestWordCounter}]", "Class does not appear to be a spout: dskype.TestWordCounter")
    refused(
        WORDS + "bolts: [{id: b, className: dskype.Fields, constructorArgs: [a]}]\nstreams: [{from: words, to: b, grouping: {type: ALL}}]",
        "Class does not appear to be a bolt: dskype.Fields",
    )


# --- F6, F7: phases and configuration ---------------------------------------------------------------------------------


def test_names_of_streams_and_fields_are_checked_at_submission_only() -> None:
    loaded = flux("name: x\n" + WORDS + COUNT + "streams: [{from: nobody, to: count, grouping: {type: FIELDS, args: [nothing]}}]")
    with pytest.raises(InvalidTopologyException, match="subscribes from non-existent component"):
        validate_submission("x", loaded.config, loaded.topology)


def test_configuration_is_type_checked_when_the_file_is_loaded() -> None:
    refused("config: {topology.debug: 'yes'}", "must be of type class java.lang.Boolean", IllegalArgumentException)
    message = refused(
        "spouts: [{id: s, className: dskype.TestWordSpout, config: {topology.debug: 1}}]", "must be of type class java.lang.Boolean", IllegalArgumentException
    )
    assert "component: 's'" in message
    assert flux(WHOLE + "config: {some.key: [1, x]}").config == {"some.key": [1, "x"]}


def test_a_name_and_configuration_from_the_caller_win() -> None:
    loaded = flux(WHOLE + "config: {topology.workers: 1, a: 1}", name="other", config={"topology.workers": 3})
    assert (loaded.name, loaded.config) == ("other", {"topology.workers": 3, "a": 1})


# --- F8, F9: substitution and includes --------------------------------------------------------------------------------


def test_placeholders_are_replaced_before_the_yaml_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.properties").write_text('name: wc\nn=4\nfields=["word", "x"]\n')
    text = (
        "name: ${name}\nspouts: [{id: words, className: dskype.TestWordSpout, parallelism: ${n}}]\n"
        + COUNT
        + "streams: [{from: words, to: ${ENV-WHO}, grouping: {type: FIELDS, args: [${fields[0]}]}}]"
    )
    loaded = flux(text, properties=tmp_path / "p.properties", environ={"WHO": "count"})
    assert (loaded.name, loaded.topology.components["words"].parallelism_hint) == ("wc", 4)
    assert loaded.topology.components["count"].inputs == {("words", "default"): groupings.FieldsGrouping(Fields("word"))}


def test_a_missing_property_is_a_warning_of_the_topology() -> None:
    assert flux("name: ${nope}").warnings == ["text: Could not find replacement for property: nope (line 1)"]


def include(tmp_path: Path, main: str, part: str, **options):
    (tmp_path / "part.yaml").write_text(part)
    (tmp_path / "main.yaml").write_text(main)
    return load(tmp_path / "main.yaml", **options)


def test_an_include_adds_what_is_missing_and_does_not_override(tmp_path: Path) -> None:
    part = "name: part\nconfig: {a: 1, b: 2}\n" + WORDS + COUNT.replace("3", "9") + STREAM
    loaded = include(tmp_path, "name: main\nconfig: {a: 0}\n" + COUNT + "includes: [{file: part.yaml}]", part)
    assert (loaded.name, loaded.config) == ("main", {"a": 0, "b": 2})
    assert loaded.topology.components["count"].parallelism_hint == 3
    assert loaded.topology.components["words"].parallelism_hint == 2
    assert len([w for w in loaded.warnings if "with override == false" in w]) == 3


def test_an_include_with_override_wins(tmp_path: Path) -> None:
    part = "name: part\nconfig: {a: 1}\n" + COUNT.replace("3", "9")
    loaded = include(tmp_path, "name: main\nconfig: {a: 0}\nincludes: [{file: part.yaml, override: true}]\n" + WORDS + COUNT + STREAM, part)
    assert (loaded.name, loaded.config) == ("part", {"a": 1})
    assert loaded.topology.components["count"].parallelism_hint == 9


def test_streams_of_an_include_are_always_appended(tmp_path: Path) -> None:
    part = "streams: [{from: count, to: count, grouping: {type: ALL}}]"
    loaded = include(tmp_path, WHOLE + "includes: [{file: part.yaml}]", part)
    assert len(loaded.definition.streams) == 2


def test_an_include_goes_one_level_deep_and_loses_hooks_and_source(tmp_path: Path) -> None:
    part = "includes: [{file: deeper.yaml}]\nworkerHooks: [{id: h, className: org.apache.storm.hooks.BaseWorkerHook}]\ntopologySource: {className: x}"
    loaded = include(tmp_path, WHOLE + "includes: [{file: part.yaml}]", part)
    assert [w.split(" of an")[0] for w in loaded.warnings] == ["part.yaml: includes", "part.yaml: workerHooks", "part.yaml: topologySource"]


def test_placeholders_of_an_include_are_replaced_too(tmp_path: Path) -> None:
    assert include(tmp_path, "includes: [{file: part.yaml}]", "name: ${n}", properties={"n": "x"}).name == "x"


def test_a_resource_is_found_in_its_folder_and_never_outside(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    (folder / "part.yaml").write_text("name: inside")
    (tmp_path / "outside.yaml").write_text("name: outside")
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    assert flux("includes: [{file: /part.yaml, resource: true}]", resources=[folder]).name == "inside"
    assert load("part.yaml", resource=True, resources=[folder]).name == "inside"
    for bad in ("../outside.yaml", "link.yaml", str(tmp_path / "outside.yaml"), "nope.yaml"):
        refused(f"includes: [{{file: '{bad}', resource: true}}]", "There is no such resource", resources=[folder])


def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    for bad in (tmp_path, tmp_path / "nope.yaml"):
        with pytest.raises(FluxException, match="is not a file"):
            load(bad)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(FluxException, match="is not UTF-8 text. given: 'byte 0xe9 at 9'"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(FluxException, match="too large"):
        load(tmp_path / "big.yaml")


# --- F10: topology source ---------------------------------------------------------------------------------------------


def test_a_topology_source_makes_the_topology_from_the_configuration() -> None:
    loaded = flux(f"name: s\nconfig: {{my.parallelism: 3}}\ntopologySource: {{className: {SAMPLE}.Source}}", allow_modules=[SAMPLE])
    assert loaded.topology.components["words"].parallelism_hint == 3
    other = flux(f"topologySource: {{className: {SAMPLE}.Source, methodName: otherName}}", allow_modules=[SAMPLE])
    assert list(other.topology.components) == ["words"]


@pytest.mark.parametrize("more", [WORDS, COUNT, STREAM])
def test_a_topology_source_beside_spouts_bolts_or_streams_is_refused(more: str) -> None:
    refused(
        f"topologySource: {{className: {SAMPLE}.Source}}\n" + more,
        "Invalid topology config. Spouts, bolts and streams cannot be defined in the same configuration as a topologySource.",
    )


def test_a_topology_source_without_the_method_or_with_a_wrong_result_is_refused() -> None:
    for method in ("nope", "none", "__init__"):
        refused(f"topologySource: {{className: {SAMPLE}.Source, methodName: {method}}}", f"Unable to find method '{method}' method in class: {SAMPLE}.Source")
    refused(f"topologySource: {{className: {SAMPLE}.Source, methodName: broken}}", "raised RuntimeError: source is broken")
    refused(f"topologySource: {{className: {SAMPLE}.Source, methodName: two}}", "raised TypeError")


@pytest.mark.parametrize(
    "text",
    [
        "spouts: [{id: s, className: dskype.ShellSpout, constructorArgs: [[sh, -c, id], [a]]}]",
        "spouts: [{id: s, className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout, constructorArgs: [[sh, -c, id], [a]]}]",
        "spouts: [{id: w, className: dskype.TestWordSpout}]\nbolts: [{id: s, className: dskype.ShellBolt, constructorArgs: [[sh, -c, id], [a]]}]\n"
        "streams: [{from: w, to: s, grouping: {type: SHUFFLE}}]",
        "topologySource: {className: org.apache.storm.flux.test.SimpleTopology}",
        "spouts: [{id: s, className: dskype.topology.multilang.ShellSpout, constructorArgs: [[sh, -c, id], [a]]}]",
    ],
)
def test_a_file_starts_programs_only_where_commands_are_allowed(text: str) -> None:
    if "multilang" in text:  # whoever names the module has allowed what is in it
        assert flux("name: x\n" + text, allow_modules=["dskype.topology.multilang"])
        return
    with pytest.raises(FluxException, match=r"starts a program, which is not allowed.*--allow-commands"):
        flux("name: x\n" + text, allow_modules=[SAMPLE])
    assert flux("name: x\n" + text, allow_commands=True)


def test_storms_sample_sources_have_stand_ins() -> None:
    for name in ("SimpleTopology", "SimpleTopologySource", "SimpleTopologyWithConfigParam"):
        for arguments in ("", ", constructorArgs: [foo, bar]"):
            loaded = flux(f"name: x\ntopologySource: {{className: org.apache.storm.flux.test.{name}{arguments}}}", allow_commands=True)
            assert {id: type(spec.obj).__name__ for id, spec in loaded.topology.components.items()} == {
                "sentence-spout": "ShellSpout",
                "log-bolt": "LogInfoBolt",
            }
            assert validate_submission("x", loaded.config, loaded.topology) == []


@pytest.mark.parametrize(("arguments", "fits"), [("[[a, b]]", True), ("[a]", False), ("[a, b]", False), ("[]", False)])
def test_storms_fields_take_one_list_of_names_and_ours_take_names_too(arguments: str, fits: bool) -> None:
    text = "components: [{{id: f, className: {}, constructorArgs: {}}}]"
    if fits:
        assert flux(text.format("org.apache.storm.tuple.Fields", arguments)).objects["f"] == Fields("a", "b")
    else:
        message = refused(
            text.format("org.apache.storm.tuple.Fields", arguments), "Couldn't find a suitable constructor for class 'org.apache.storm.tuple.Fields'"
        )
        assert "write the names as one list" in message
    assert flux(text.format("dskype.Fields", "[a, b]")).objects["f"] == Fields("a", "b")


# --- F11: details -----------------------------------------------------------------------------------------------------


def test_the_details_are_printed_as_flux_prints_them() -> None:
    text = WHOLE + "workerHooks: [{id: hook, className: org.apache.storm.hooks.BaseWorkerHook}]"
    assert flux(text).describe() == (
        "---------- TOPOLOGY DETAILS ----------\n"
        "Topology Name: wc\n"
        "--------------- SPOUTS ---------------\n"
        "words [2] (org.apache.storm.testing.TestWordSpout)\n"
        "---------------- BOLTS ---------------\n"
        "count [3] (org.apache.storm.testing.TestWordCounter)\n"
        "--------------- STREAMS ---------------\n"
        "words --FIELDS--> count\n"
        "--------------- WORKER HOOKS ---------------\n"
        "hook (org.apache.storm.hooks.BaseWorkerHook)\n"
        "--------------------------------------"
    )


# --- F12: registry ----------------------------------------------------------------------------------------------------


def test_every_registered_name_resolves_to_a_class() -> None:
    registry = default_registry()
    assert all(isinstance(registry.resolve(name, "test"), type) for name in registry)


@pytest.mark.parametrize(
    "name", ["os.system", "subprocess.Popen", "builtins.eval", "eval", "", "org.apache.storm.Nope", "dskype.topology.flux.loader.load", f"{SAMPLE}.Thing"]
)
def test_a_class_outside_the_registry_is_not_found_and_the_error_names_the_id(name: str) -> None:
    with pytest.raises(ClassNotFoundException, match="Class not found: .*, named by spout 's'"):
        flux(f"spouts: [{{id: s, className: '{name}'}}]")


def test_a_refused_class_of_the_user_says_how_to_allow_it() -> None:
    refused("spouts: [{id: s, className: mine.words.Spout}]", "hint: if it is yours, allow its module: --allow-module mine", ClassNotFoundException)


def test_a_misspelt_class_of_storm_offers_the_right_one() -> None:
    assert "did you mean org.apache.storm.testing.TestWordSpout or" in refused(
        "spouts: [{id: s, className: org.apache.storm.testing.TestWordsSpout}]", "Class not found"
    )


def test_trident_drpc_and_sql_are_refused_by_name() -> None:
    for name, words in (("trident.topology.X", "Trident"), ("drpc.DRPCSpout", "DRPC"), ("sql.X", "Storm SQL")):
        refused(f"spouts: [{{id: s, className: org.apache.storm.{name}}}]", f"{words} is not part of the emulator")


@pytest.mark.parametrize("name", ["Popen", "json.JSONDecoder", "OrderedDict"])
def test_a_module_that_is_allowed_does_not_open_what_it_imports(name: str) -> None:
    refused(f"components: [{{id: c, className: {SAMPLE}.{name}}}]", "is defined in a module that is not allowed", ClassNotFoundException)


def test_only_classes_can_be_named() -> None:
    refused(f"components: [{{id: c, className: {SAMPLE}.constant}}]", "is not a class", ClassNotFoundException)
    refused(f"components: [{{id: c, className: {SAMPLE}.__class__}}]", "Class not found", ClassNotFoundException)


def test_an_allowed_module_opens_its_own_classes_and_those_below_it() -> None:
    for allowed in (SAMPLE, "tests.topology.flux", "tests"):
        loaded = flux(f"components: [{{id: c, className: {SAMPLE}.Part}}, {{id: i, className: {SAMPLE}.Part$Inner}}]", allow_modules=[allowed])
        assert loaded.modules == [SAMPLE]
    refused(f"components: [{{id: c, className: {SAMPLE}.Part}}]", "Class not found", ClassNotFoundException, allow_modules=["tests.topology.flux.sam"])


def test_a_module_that_cannot_be_imported_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flux_broken_module.py").write_text("import module_that_is_not_there\n")
    (tmp_path / "flux_raising_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused(
        "spouts: [{id: s, className: flux_broken_module.X}]",
        "cannot be imported: No module named 'module_that_is_not_there'",
        allow_modules=["flux_broken_module"],
    )
    refused("spouts: [{id: s, className: flux_raising_module.X}]", "cannot be imported: ZeroDivisionError", allow_modules=["flux_raising_module"])
    absent = "its module is looked for in PYTHONPATH, in the working folder and beside the file"
    refused("spouts: [{id: s, className: flux_absent_module.X}]", absent, ClassNotFoundException, allow_modules=["flux_absent_module"])
    refused(f"spouts: [{{id: s, className: {SAMPLE}.Prt}}]", f"{SAMPLE} has no Prt; did you mean Part?", ClassNotFoundException, allow_modules=[SAMPLE])
    refused("spouts: [{id: s, className: com.example.Words}]", "write it, name that as className ('mybolts.Words'), and allow its module")
    assert "flux_broken_module" not in sys.modules


def test_a_registry_can_be_extended_by_classes_and_by_import_paths() -> None:
    registry = default_registry().extended({"mine.A": testing.TestWordSpout, "mine.B": "dskype.topology.testing:TestPlannerSpout"})
    loaded = flux("spouts: [{id: a, className: mine.A}, {id: b, className: mine.B}]", registry=registry)
    assert [type(c.obj).__name__ for c in loaded.topology.components.values()] == ["TestWordSpout", "TestPlannerSpout"]
    assert "mine.A" not in default_registry()
    refused(WORDS, "Class not found", ClassNotFoundException, registry=Registry())


# --- after Storm's own sample files -----------------------------------------------------------------------------------


def test_the_configuration_methods_sample_of_storm_is_built() -> None:
    names = ("foo", "bar", "baz")
    parts = "".join(f"- {{id: {n}, className: 'org.apache.storm.flux.test.TestBolt$TestClass', constructorArgs: [{n}]}}\n" for n in names)
    loaded = flux(
        f"components:\n{parts}" + WORDS + "bolts:\n"
        "- id: bolt-1\n  className: org.apache.storm.flux.test.TestBolt\n  constructorArgs: [FOO, 1.0, true, {reflist: [foo, bar]}]\n"
        "  configMethods:\n  - {name: withFoo, args: [foo]}\n  - {name: withNone}\n  - {name: withBar, args: [bar]}\n"
        "  - {name: withFooBar, args: [foo, bar]}\n  - {name: withClasses, args: [{reflist: [foo, bar, baz]}]}\n"
        "- {id: bolt-2, className: org.apache.storm.flux.test.TestBolt, factory: newInstance, factoryArgs: [BAR]}\n"
        "- {id: bolt-3, className: org.apache.storm.flux.test.TestBolt, constructorArgs: [10]}\n"
        "- {id: bolt-4, className: org.apache.storm.flux.test.TestBolt, factory: newLongInstance, factoryArgs: [7]}\n"
        "streams: [{from: words, to: bolt-1, grouping: {type: SHUFFLE}}]"
    )
    bolt = loaded.objects["bolt-1"]
    assert (bolt.te, bolt.f, bolt.b) == (TestEnum.FOO, 1.0, True)
    assert (bolt.foo, bolt.none, bolt.bar, bolt.foo_bar) == ("foo", "hit", "bar", "foobar")
    assert bolt.classes == tuple(TestClass(n) for n in names)
    assert [loaded.objects[f"bolt-{i}"].te for i in (2, 3, 4)] == [TestEnum.BAR, 10, 7]


def test_durations_are_made_by_their_factories() -> None:
    loaded = flux(
        "components: [{id: d, className: java.time.Duration, factory: ofSeconds, factoryArgs: [5]}]\n"
        "bolts: [{id: b, className: org.apache.storm.flux.test.TestBolt, constructorArgs: [FOO], properties: [{name: timeLen, ref: d}], "
        "configMethods: [{name: withDurationArr, args: [{reflist: [d, d]}]}]}]"
    )
    assert loaded.objects["b"].time_len == Duration(5000)


KAFKA = (
    "name: kafka\ncomponents:\n"
    "- {id: translator, className: org.apache.storm.flux.test.OnlyValueRecordTranslator}\n"
    "- id: builder\n  className: 'org.apache.storm.kafka.spout.KafkaSpoutConfig$Builder'\n  constructorArgs: ['localhost:9092', [myKafkaTopic]]\n"
    "  properties:\n  - {name: firstPollOffsetStrategy, value: EARLIEST}\n  - {name: recordTranslator, ref: translator}\n"
    "  configMethods:\n  - {name: setProp, args: [{'value.deserializer': org.apache.kafka.common.serialization.StringDeserializer, 'group.id': g}]}\n"
    "- {id: config, className: org.apache.storm.kafka.spout.KafkaSpoutConfig, constructorArgs: [{ref: builder}]}\n"
    "spouts: [{id: words, className: org.apache.storm.kafka.spout.KafkaSpout, constructorArgs: [{ref: config}]}]\n"
)


def test_the_kafka_sample_of_storm_becomes_a_kafka_spout() -> None:
    spout = flux(KAFKA).topology.components["words"].obj
    assert isinstance(spout, KafkaSpout)
    assert (spout.topics, spout.first_poll_strategy) == (["myKafkaTopic"], "EARLIEST")
    assert spout.kafka_options == {"bootstrap.servers": "localhost:9092", "group.id": "g"}
    assert spout.outputs == {"default": Fields("value")}
    assert spout.translate("t", 0, 1, None, "é".encode(), 5, []) == [("default", ["é"])]
    assert spout.offset_commit_period_ms == 30_000


def test_a_string_deserializer_replaces_what_is_no_text_as_javas_does() -> None:
    spout = flux(KAFKA.replace("- {name: recordTranslator, ref: translator}", "- {name: offsetCommitPeriodMs, value: 1000}")).topology.components["words"].obj
    assert spout.translate("t", 0, 1, b"\x00\xff\xc3\xa9\xe2\x82", b"a\xed\xa0\x80b", 5, []) == [
        ("default", ("t", 0, 1, "\x00\ufffdé\ufffd", "a\ufffd\ufffd\ufffdb"))
    ]
    assert spout.offset_commit_period_ms == 1000


def test_the_kafka_builder_refuses_what_kafka_would() -> None:
    for old, new, words in (
        ("value: EARLIEST", "value: FIRST", "first_poll_strategy is not known"),
        ("common.serialization.StringDeserializer", "x.AvroDeserializer", "The deserializer is not known"),
        ("ref: translator", "value: x", "Not a record translator"),
    ):
        refused(KAFKA.replace(old, new), words)


def test_hdfs_components_can_be_built_but_not_run() -> None:
    loaded = flux(
        "name: x\nspouts: [{id: s, className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout, constructorArgs: [[node, s.js], [word]], "
        "configMethods: [{name: addComponentConfig, args: [k, [v]]}]}]\n"
        "components: [{id: sync, className: org.apache.storm.hdfs.bolt.sync.CountSyncPolicy, constructorArgs: [5]}]\n"
        "bolts: [{id: h, className: org.apache.storm.hdfs.bolt.HdfsBolt, configMethods: [{name: withFsUrl, args: ['hdfs://x']}, {name: withSyncPolicy, args: [{ref: sync}]}]}]\n"
        "streams: [{from: s, to: h, grouping: {type: SHUFFLE}}]",
        allow_commands=True,
    )
    assert loaded.topology.components["s"].conf == {"k": ["v"]}
    assert set(loaded.refusals) == {"h"}
    with pytest.raises(FluxException, match="Component h cannot be run: there is no HDFS here"):
        loaded.check_runnable()
    with pytest.raises(InvalidTopologyException, match="Component h cannot be run: there is no HDFS here"):  # whoever submits it
        validate_submission("x", loaded.config, loaded.topology)
    with pytest.raises(FluxException, match="The topology has no name"):
        flux(WORDS).check_runnable()
    flux(WHOLE).check_runnable()


def test_loading_needs_neither_spark_nor_kafka() -> None:
    import subprocess

    code = "import sys, dskype.topology.flux; print([m for m in ('pyspark', 'kafka', 'numba', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
