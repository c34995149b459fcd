"""The README's examples are run as they stand there, topologies on the simulated transport."""

import re
from pathlib import Path

from dskype.topology.local import LocalCluster


def example(word: str) -> dict:
    """Run the one example that has this word in it."""
    text = (Path(__file__).parent.parent / "README.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in code]
    names = {"__name__": "readme_example"}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_library_keeps_the_lists_of_the_readme(capsys):
    skype = example("from_texts")["skype"]
    assert [id for id, _ in skype.results("ann")] == ["m2", "m3"]
    *changes, last = capsys.readouterr().out.splitlines()
    assert len(changes) == 4 and changes[1] == "{}" and last.startswith("[('m2', ")


def test_the_example_of_the_readme_counts_words():
    names = example("TopologyBuilder")
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("words", {}, names["word_count"]()) as topology:
        cluster.advance_cluster_time(10)
        counts = [c.counts for c in topology.backend.components("count")]
        assert topology.stats.total("count", "executed") == 6000
        assert {word: n for part in counts for word, n in part.items()} == {"the": 2000, "cow": 1000, "jumped": 1000, "over": 1000, "moon": 1000}
