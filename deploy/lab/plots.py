"""``dskype bench scoreboard --page``: the plots of result files as SVG, drawn without another run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dskype.deploy.lab.boolean import report as boolean
from dskype.deploy.lab.dskype import report as distribution
from dskype.deploy.lab.experiments import Experiment
from dskype.deploy.lab.ps2stream import report as ps2stream
from dskype.deploy.lab.report import Report
from dskype.deploy.lab.skype import report as skype
from dskype.deploy.lab.tornado import report as tornado

__all__ = ["REPORTS", "plots"]

REPORTS: Mapping[str, Report] = {one.paper: one for one in (skype.REPORT, distribution.REPORT, boolean.REPORT, tornado.REPORT, ps2stream.REPORT)}
"""Action of ``dskype bench`` -> how its results are shown."""

_HEIGHT_IN = 3.6


def plots(result: Mapping[str, Any], described: Mapping[str, Experiment]) -> str:
    """Return an SVG picture with two plots of each experiment of a result, one experiment below the other. The same result gives the same picture.

    :param described: name -> experiment; those that are not there are not drawn.
    :raises ImportError: matplotlib is not installed.
    """
    import io

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    report = REPORTS[result["paper"]]
    drawn = [(described[e["name"]], e["title"], e["rows"]) for e in result["experiments"] if e["name"] in described and e["rows"]]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": result["paper"], "path.simplify_threshold": 1.0}):
        figure = Figure(figsize=(10, _HEIGHT_IN * len(drawn)), layout="constrained")
        for part, (experiment, title, rows) in zip(figure.subfigures(len(drawn), squeeze=False)[:, 0], drawn):
            left, right = part.subplots(1, 2)
            shown = {"name": experiment.name, "title": title, "x": experiment.x, "second": experiment.second, "rows": rows}
            try:
                report.draw_into(shown, part, left, right)
            except KeyError:  # the result is of an earlier version
                part.suptitle(f"{title}: not drawn, its rows lack some measures")
            for axes in (left, right):
                axes.minorticks_off()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(_shortened(text.getvalue())) + "\n"


def _shortened(svg: str) -> Iterator[str]:
    """Yield the lines of a picture without names of groups and comments, and with places to a tenth of a point."""
    body = svg[svg.index("<svg") :]
    for line in re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL).splitlines():
        if short := re.sub(r'<g id="[a-zA-Z0-9_.]*"', "<g", line.strip()):
            yield re.sub(r"(\d+\.\d)\d+", r"\1", short)
