"""The SVG that figures are written as: what a browser without our fonts shows, and how little is written."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from ablations.figures.style import Drawing, svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn():
    figure = Drawing(figsize=(4, 3))
    axes = figure.subplots()
    axes.plot([0, 1 / 3, 2], [1, 2 / 7, 3], "o-", alpha=1 / 3)
    axes.set_title("a < b & 1.23456")
    axes.set_ylabel("a long first line\nshort")
    axes.text(0.5, 1, "ALBERT  43")
    return figure


def lines(text):
    return {element.text: element for element in ElementTree.fromstring(text).iter(f"{SVG}text")}


def test_text_is_text_to_find_and_to_read_aloud():
    found = lines(svg(drawn()))
    assert {"a < b & 1.23456", "a long first line", "short", "ALBERT\u00a0\u00a043"} <= {*found}
    fonts = found["short"].get("style")
    assert "'DejaVu Sans', Verdana, sans-serif" in fonts


def test_a_line_of_several_has_the_room_that_was_measured_and_others_their_anchor():
    found = lines(svg(drawn()))
    long, short = found["a long first line"], found["short"]
    widths = [float(line.get("textLength")) for line in (long, short)]
    assert widths[0] > 2.5 * widths[1] > 50
    starts = [float(re.search(r"translate\(\S+ (\S+)\)", line.get("transform"))[1]) for line in (long, short)]
    middles = [start - width / 2 for start, width in zip(starts, widths, strict=True)]  # turned: upwards
    assert middles[0] == pytest.approx(middles[1], abs=1)
    assert found["ALBERT\u00a0\u00a043"].get("x")
    assert found["ALBERT\u00a0\u00a043"].get("textLength") is None


def test_points_are_where_matplotlib_draws_them_to_a_hundredth():
    figure = drawn()
    text = svg(figure)
    path = next(e for e in ElementTree.fromstring(text).iter(f"{SVG}path") if "stroke-opacity" in e.get("style", ""))
    given = np.array(re.findall(r"-?[\d.]+", path.get("d")), dtype=float).reshape(-1, 2)
    (axes,) = figure.axes
    figure.dpi = 72
    places = axes.transData.transform(np.column_stack(axes.lines[0].get_data()))
    assert given == pytest.approx(np.column_stack([places[:, 0], 72 * 3 - places[:, 1]]), abs=0.0051)
    assert "stroke-opacity: 0.33;" in path.get("style")
    assert max(map(len, re.findall(r'(?<=[ "]\d\.)\d+', re.sub(r">[^<]*<", "><", text)))) <= 2


def test_the_same_picture_where_a_machine_rounds_otherwise():
    """Clip boxes and markers have ids, and what refers to them finds them."""
    text = svg(placed(0.1))
    assert svg(placed(np.nextafter(0.1, 1))) == text
    ids = {element.get("id") for element in ElementTree.fromstring(text).iter() if element.get("id")}
    referred = {*re.findall(r'(?:url\(|href=")#([^)"]+)', text)}
    assert referred
    assert referred <= ids


def placed(left):
    figure = Drawing(figsize=(4, 3))
    figure.add_axes((left, 0.1, 0.8, 0.8)).plot([0, 1], [1, 2], "o-")
    return figure
