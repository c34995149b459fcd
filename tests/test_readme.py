"""The README's example is run as it stands there, on the simulated transport."""

import re
from pathlib import Path

from dskype.topology.local import LocalCluster


def test_the_example_of_the_readme_counts_words():
    text = (Path(__file__).parent.parent / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"__name__": "readme_example"}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 (our own text)
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("words", {}, names["word_count"]()) as topology:
        cluster.advance_cluster_time(10)
        counts = [c.counts for c in topology.backend.components("count")]
        assert topology.stats.total("count", "executed") == 6000
        assert {word: n for part in counts for word, n in part.items()} == {
            "the": 2000, "cow": 1000, "jumped": 1000, "over": 1000, "moon": 1000}
