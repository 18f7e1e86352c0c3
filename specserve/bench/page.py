"""One HTML page, complete in itself, from the files that other benchmarks wrote.

    specserve bench report kernels.json with.json without.json --output report.html

A file says by its keys what it is good for; what no file tells is not on the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specserve.config.bench_serving import PageFlags
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figures = Mapping[str, Any]

FIRST_POSITIONS = 12
SIZE = (7.0, 3.6)  # inches of a plot
HEAD = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>specserve bench</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; }
svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; background: #f4f4f4; padding: .6em; }
</style>
<h1>specserve bench</h1>
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A file of figures. `name` is its own without the ending."""

    name: str
    figures: Figures

    @property
    def is_speculative(self) -> bool:
        return "spec_decode_acceptance_length" in self.figures


@dataclass(frozen=True, slots=True)
class Plot:
    """`draw` puts those of the sources on the axes that `fits`; a plot that none fits is left out."""

    title: str
    note: str
    fits: Callable[[Figures], bool]
    draw: Callable[[Axes, Sequence[Source]], None]


def run(values: Mapping[str, Any]) -> None:
    """Write the page. Raises `ConfigError`, also where matplotlib is not installed."""
    flags = from_mapping(PageFlags, select(values, PageFlags))
    sources = [read_source(Path(name)) for name in values.get("files") or []]
    if not sources:
        raise ConfigError("Name the files that other benchmarks wrote: specserve bench report FILE...")
    text = page(sources)
    try:
        Path(flags.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"output={flags.output!r} cannot be written ({error.strerror}).", "output"
        ) from None
    print(flags.output)


def read_source(path: Path) -> Source:
    """Raises `ConfigError` for a file that no benchmark wrote."""
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); name a file that --json wrote.") from None
    if not isinstance(figures, dict) or "config" not in figures:
        raise ConfigError(f"{path} holds no figures of a benchmark; name a file that --json wrote.")
    return Source(path.stem, figures)


def page(sources: Sequence[Source]) -> str:
    """The whole page: a plot for everything that the sources tell, then who they are."""
    parts = [HEAD]
    for plot in PLOTS:
        fitting = [source for source in sources if plot.fits(source.figures)]
        if fitting:
            parts.append(f"<h2>{escape(plot.title)}</h2>\n<p>{escape(plot.note)}</p>\n{svg(plot, fitting)}\n")
    parts.append("<h2>Files</h2>\n")
    for source in sources:
        config = json.dumps(source.figures["config"], indent=1)
        parts.append(f"<h3>{escape(source.name)}</h3>\n<pre>{escape(config)}</pre>\n")
    return "".join(parts) + "</html>\n"


def svg(plot: Plot, sources: Sequence[Source]) -> str:
    """Raises `ConfigError` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("bench report needs matplotlib: pip install 'specserve[bench]'") from None
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    plot.draw(axes, sources)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


# --- the plots ------------------------------------------------------------------------------------


def _steps(axes: Axes, sources: Sequence[Source]) -> None:
    for source in sources:
        rows = source.figures["rows"]
        [line] = axes.plot([int(name) for name in rows], list(rows.values()), "o-", label=source.name)
        roof = list(_roof(source.figures))
        if roof:
            label = f"{source.name}: read alone"
            axes.plot(*zip(*roof, strict=True), "--", color=line.get_color(), label=label)
    axes.set_xlabel("rows")
    axes.set_ylabel("ms of a target step")
    axes.set_ylim(bottom=0)


def _roof(figures: Figures) -> Iterator[tuple[int, float]]:
    """Rows, and the milliseconds in which their bytes could be read."""
    rate = figures.get("read_gb_per_s")
    for name, step in figures.get("steps", {}).items():
        if rate and step.get("num_bytes"):
            yield int(name), step["num_bytes"] / (rate * 1e9) * 1e3


def _speed_ups(axes: Axes, sources: Sequence[Source]) -> None:
    names = list(dict.fromkeys(name for source in sources for name in source.figures["categories"]))
    width = 0.8 / len(sources)
    for number, source in enumerate(sources):
        found = source.figures["categories"]
        heights = [found.get(name, {}).get("decode_speed_up") or 0.0 for name in names]
        places = [at + (number - (len(sources) - 1) / 2) * width for at in range(len(names))]
        axes.bar(places, heights, width, label=source.name)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize="small")
    axes.set_ylabel("speed-up of decoding")


def _acceptance(axes: Axes, sources: Sequence[Source]) -> None:
    for source in sources:
        rates = source.figures["acceptance_per_position"][:FIRST_POSITIONS]
        axes.plot(range(len(rates)), [100 * rate for rate in rates], "o-", label=source.name)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, % of verifications")
    axes.set_ylim(0, 100)


def _concurrency(axes: Axes, sources: Sequence[Source]) -> None:
    for label, is_speculative in (("with speculation", True), ("without", False)):
        points = sorted(
            (source.figures["max_concurrency"], source.figures["output_throughput"])
            for source in sources
            if source.is_speculative == is_speculative
        )
        if points:
            axes.plot(*zip(*points, strict=True), "o-", label=label)
    axes.set_xlabel("requests at the same time")
    axes.set_ylabel("output tokens/s")
    axes.set_ylim(bottom=0)


PLOTS = (
    Plot(
        "Time of a target step",
        "By number of rows; k guesses are verified by a step of k + 1. Dashed: what reading its bytes takes.",
        lambda figures: bool(figures.get("rows")),
        _steps,
    ),
    Plot(
        "Speed-up by category",
        "How much sooner the next token comes than without speculation, in the same run.",
        lambda figures: figures.get("decode_speed_up") is not None,
        _speed_ups,
    ),
    Plot(
        "Acceptance by position",
        "How often a verification accepted its guess at this position.",
        lambda figures: bool(figures.get("acceptance_per_position")),
        _acceptance,
    ),
    Plot(
        "Throughput against concurrency",
        "Of servers, all requests together.",
        lambda figures: figures.get("max_concurrency") is not None,
        _concurrency,
    ),
)
