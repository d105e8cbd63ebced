"""Colours: distinguishable with every common colour-vision deficiency, and the same for a region in every plot of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scope_profiler.plotting_scripts._inputs import Run

__all__ = ["HEAT", "named_colors", "region_colors", "text_on"]

# The palettes of Okabe and Ito and of Tol ("muted"), those first that differ most.
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288", "#117733", "#999933", "#882255",
    "#44AA99", "#CC6677", "#DDCC77", "#AA4499",
)  # fmt: skip
SESSION = "scope_profiler.session"
SESSION_COLOR = "#BBBBBB"
HEAT = "cividis"  # even in lightness, for every kind of colour vision


def named_colors(names: Iterable[str], cmap: str | None = None) -> dict[str, str]:
    """A colour for each name, by place. ``cmap``: the name of a matplotlib colormap to take them from; None: the palette."""
    unique = list(dict.fromkeys(names))
    colors = _palette(len(unique)) if cmap is None else _sampled(cmap, len(unique))
    return dict(zip(unique, colors))


def region_colors(runs: Sequence[Run], cmap: str | None = None) -> dict[str, str]:
    """A colour for each region, by where it appears in the whole runs: what is left out does not change it."""
    names = [name for run in runs for name in run.results.region_names]
    colors = named_colors((name for name in names if name != SESSION), cmap)
    if SESSION in names:
        colors[SESSION] = SESSION_COLOR
    return colors


def _palette(count: int) -> list[str]:
    """Beyond its end the palette repeats in lighter and lighter shades."""
    colors = []
    for number in range(count):
        rounds, place = divmod(number, len(PALETTE))
        share = min(rounds * 0.3, 0.6)
        mixed = (round(c + (255 - c) * share) for c in _rgb(PALETTE[place]))
        colors.append("#{:02X}{:02X}{:02X}".format(*mixed))
    return colors


def _sampled(cmap: str, count: int) -> list[str]:
    from scope_profiler.plotting_scripts._matplotlib import colormap

    sample = colormap(cmap)
    steps = getattr(sample, "N", 256)
    if steps < 256:  # a map of single colours
        return [_hex(sample(number % steps)) for number in range(count)]
    return [_hex(sample(number / max(count - 1, 1))) for number in range(count)]


def _hex(rgba: Sequence[float]) -> str:
    return "#{:02X}{:02X}{:02X}".format(*(round(255 * value) for value in rgba[:3]))


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


@lru_cache(maxsize=256)
def text_on(color: str) -> str:
    """Black or white, whichever is easier to read on ``color`` (relative luminance of WCAG)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _rgb(color))]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#FFFFFF"
