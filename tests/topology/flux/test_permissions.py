"""What a Flux file may not do unless it is allowed by name."""

import pytest

from dskype.topology.flux import FluxException, load

WORDS = "name: t\nspouts: [{id: words, className: dskype.TestWordSpout}]\n"


def test_a_file_reads_environment_variables_only_with_permission() -> None:
    text = f"{WORDS}config: {{dskype.store: redis, dskype.store.options: {{url: 'redis://evil:1', password.env: HOME}}}}\n"
    with pytest.raises(FluxException, match=r"reads an environment variable. given: 'password.env: HOME'; hint: .*-e"):
        load(text)
    assert load(text, environ={}).config["dskype.store"] == "redis"
    assert load(WORDS, config={"dskype.store.options": {"password.env": "HOME"}}).config["dskype.store.options"] == {"password.env": "HOME"}
