"""Each text of the console can be read: contrasts of at least 4.5 : 1 (WCAG 2 AA), light and dark."""

import re

import pytest
from outbox_rig.paths import ROOT

STYLE = (ROOT / "console/style.css").read_text()
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\n *\}", STYLE, re.DOTALL))
PAIRS = [(text, back) for text in ("text", "soft", "link", "good", "warn", "bad") for back in ("page", "panel")] + [(tone, f"{tone}-back") for tone in ("good", "warn", "bad")]


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_right():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=("light", "dark"))
def test_contrasts(theme):
    assert theme.keys() == LIGHT.keys()
    low = {pair: round(contrast(theme[pair[0]], theme[pair[1]]), 2) for pair in PAIRS if contrast(theme[pair[0]], theme[pair[1]]) < 4.5}
    assert not low


def test_no_colour_stands_outside_the_themes():
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r":root \{.*?\n *\}", "", STYLE, flags=re.DOTALL))
