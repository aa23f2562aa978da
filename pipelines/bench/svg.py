"""Charts as SVG, without a plotting library: a frame with axes, and marks in data coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 40, 60
COLORS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#475569")
"""Blue, orange, green, purple, slate: told apart by people who do not see red and green too."""

LABEL_PLACES = (0.5, 0.3, 0.7, 0.15, 0.85)
"""Where along a line its label may be, the best place first."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in the image."""

FONT = "font-family='system-ui, sans-serif' font-size='12'"


@dataclass
class Chart:
    """A chart with logarithmic axes; `x` and `y` are the ranges that it shows."""

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    x_title: str
    y_title: str
    parts: list[str] = field(default_factory=list)
    labels: list[Box] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point; what lies outside is moved to the edge."""
        return (
            _place(x, self.x, LEFT, WIDTH - RIGHT),
            _place(y, self.y, HEIGHT - BOTTOM, TOP),
        )

    def line(self, start: tuple[float, float], end: tuple[float, float], label: str) -> None:
        """A line; its label is where no other one is, and without room under the pointer."""
        (x0, y0), (x1, y1) = self.at(*start), self.at(*end)
        self.parts.append(
            f"<line x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}' stroke='#64748b'>"
            f"<title>{escape(label)}</title></line>"
        )
        turn = math.atan2(y1 - y0, x1 - x0)
        for share in LABEL_PLACES:
            x, y = x0 + share * (x1 - x0), y0 + share * (y1 - y0) - 5
            box = _box(x, y, label, turn)
            if not any(_meet(box, other) for other in self.labels):
                self.labels.append(box)
                self.parts.append(
                    f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='middle' fill='#475569' "
                    f"transform='rotate({math.degrees(turn):.1f} {x:.1f} {y:.1f})'>"
                    f"{escape(label)}</text>"
                )
                return

    def point(self, x: float, y: float, color: str, label: str) -> None:
        """A point whose label shows under the pointer."""
        px, py = self.at(x, y)
        self.parts.append(
            f"<circle cx='{px:.1f}' cy='{py:.1f}' r='5' fill='{color}' fill-opacity='0.8'>"
            f"<title>{escape(label)}</title></circle>"
        )

    def legend(self, colors: Mapping[str, str]) -> None:
        """What the colors of points mean, in the lower right corner."""
        for number, (name, color) in enumerate(reversed(list(colors.items()))):
            x, y = WIDTH - RIGHT - 14, HEIGHT - BOTTOM - 16 - 20 * number
            self.parts.append(f"<circle cx='{x}' cy='{y}' r='5' fill='{color}'/>")
            self.parts.append(_text(x - 12, y + 4, name, "end"))

    def render(self) -> str:
        """The whole image."""
        parts = [_text(WIDTH / 2, 20, self.title, "middle", "bold")]
        for value in _decades(self.x):
            px, _ = self.at(value, self.y[0])
            parts.append(_rule(px, TOP, px, HEIGHT - BOTTOM))
            parts.append(_text(px, HEIGHT - BOTTOM + 18, f"{value:g}", "middle"))
        for value in _decades(self.y):
            _, py = self.at(self.x[0], value)
            parts.append(_rule(LEFT, py, WIDTH - RIGHT, py))
            parts.append(_text(LEFT - 8, py + 4, f"{value:g}", "end"))
        parts.append(_text(WIDTH / 2, HEIGHT - 15, self.x_title, "middle"))
        middle = HEIGHT / 2
        parts.append(
            f"<text x='18' y='{middle}' text-anchor='middle' "
            f"transform='rotate(-90 18 {middle})'>{escape(self.y_title)}</text>"
        )
        return document(WIDTH, HEIGHT, [*parts, *self.parts])


def bars(title: str, rows: Sequence[tuple[str, str, float, str]], unit: str) -> str:
    """Horizontal bars of shares: (label, color, share of 1, text beside it), with a line at 1."""
    step, left = 22, 20 + 7 * max(len(label) for label, _, _, _ in rows)
    height = TOP + step * len(rows) + 50
    width = left + 530
    scale = 400 / max([1.0, *(share for _, _, share, _ in rows)])
    x, bottom = left + scale, TOP + step * len(rows)
    # The line comes first: texts that it crosses are drawn over it.
    parts = [_text(width / 2, 20, title, "middle", "bold"), _rule(x, TOP, x, bottom, "#0f172a")]
    for number, (label, color, share, text) in enumerate(rows):
        y = TOP + step * number
        parts.append(_text(left - 8, y + 14, label, "end"))
        parts.append(
            f"<rect x='{left}' y='{y + 3}' width='{max(scale * share, 1):.1f}' height='{step - 7}' "
            f"fill='{color}' fill-opacity='0.8'/>"
        )
        parts.append(_text(left + scale * share + 6, y + 14, text, "start"))
    parts.append(_text(x, bottom + 16, unit, "middle"))
    return document(width, height, parts)


def document(width: int, height: int, parts: Sequence[str]) -> str:
    """An SVG image."""
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {FONT}>\n"
        f"<rect width='{width}' height='{height}' fill='white'/>\n{body}\n</svg>\n"
    )


def _box(x: float, y: float, text: str, turn: float) -> Box:
    """The least upright box around a text in the middle of (x, y), turned by radians."""
    wide, high, cosine, sine = 7.0 * len(text), 16.0, abs(math.cos(turn)), abs(math.sin(turn))
    half = (wide * cosine + high * sine) / 2, (wide * sine + high * cosine) / 2
    return x - half[0], y - half[1], x + half[0], y + half[1]


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _place(value: float, limits: tuple[float, float], start: float, end: float) -> float:
    low, high = map(math.log10, limits)
    share = (math.log10(max(value, 1e-300)) - low) / (high - low)
    return start + min(max(share, 0.0), 1.0) * (end - start)


def _decades(limits: tuple[float, float]) -> list[float]:
    low, high = math.ceil(math.log10(limits[0])), math.floor(math.log10(limits[1]))
    return [10.0**power for power in range(low, high + 1)]


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-weight='{weight}' "
        f"fill='#0f172a' paint-order='stroke' stroke='white' stroke-width='3'>"
        f"{escape(text)}</text>"
    )


def _rule(x0: float, y0: float, x1: float, y1: float, color: str = "#e2e8f0") -> str:
    return f"<line x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}' stroke='{color}'/>"
