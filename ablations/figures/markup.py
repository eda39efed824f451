"""The markup of figures: matplotlib's SVG in fewer bytes, whose text any browser shows in its place.

matplotlib measures text in its own fonts. A browser that lacks these takes the next in a list, as wide or narrower, so
no text leaves its room.
"""

import re
from xml.dom import minidom

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_FONTS = {  # the first, and what replaces it elsewhere
    "DejaVu Sans": "'DejaVu Sans', Verdana, sans-serif",
    "DejaVu Sans Mono": "'DejaVu Sans Mono', Menlo, 'Liberation Mono', 'Courier New', monospace",
}
_NUMBER, _UPRIGHT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?"), re.compile(r"rotate\(-?0 [^()]*\)")
_REFERENCE = re.compile(r"(?<=#)[^#()]+")
_APART = "\u00a0\u00a0"  # two spaces that stay two


def slim(svg: str) -> str:
    """The same picture with fewer bytes.

    Lengths are in hundredths of a point, which also hides how machines round. Ids are numbers: matplotlib hashes
    unrounded lengths. Metadata, turns by 0 degrees, and groups that only have a name are left out.

    Args:
        svg: A figure as matplotlib writes it, text as text.
    """
    root = minidom.parseString(svg).documentElement
    assert root is not None
    for element in root.getElementsByTagName("*"):
        parent = element.parentNode
        assert isinstance(parent, minidom.Element)
        if element.tagName == "metadata":
            parent.removeChild(element)
            continue
        _drop_blanks(element)
        if element.tagName == "text":
            _settle(element)
        for name, value in [*element.attributes.items()]:
            element.setAttribute(
                name, _NUMBER.sub(lambda number: f"{round(float(number[0]), 2) + 0.0:g}", " ".join(value.split()))
            )
        if element.tagName == "g" and {*element.attributes.keys()} <= {"id"}:
            while element.firstChild:
                parent.insertBefore(element.firstChild, element)
            parent.removeChild(element)
    _drop_blanks(root)
    _number_ids(root)
    return root.toprettyxml(indent="")


def _number_ids(root: minidom.Element) -> None:
    """Renames ids to ``i1``, ``i2``, … in the order of the elements, with all that refers to them."""
    elements = root.getElementsByTagName("*")
    named = [element for element in elements if element.hasAttribute("id")]
    ids = {element.getAttribute("id"): f"i{number}" for number, element in enumerate(named, 1)}
    for element in named:
        element.setAttribute("id", ids[element.getAttribute("id")])
    for element in elements:
        for name, value in [*element.attributes.items()]:
            if "#" in value:
                element.setAttribute(name, _REFERENCE.sub(lambda found: ids.get(found[0], found[0]), value))


def _settle(text: minidom.Element) -> None:
    """Keeps a text where it is in other fonts: at its anchor, or if it has none at its own width.

    A line of several has no anchor. matplotlib writes each from its left, where it would be centred no more.
    """
    line = text.firstChild
    if not isinstance(line, minidom.Text):  # a formula, each sign of which has its place
        return
    style = dict(part.split(": ", 1) for part in text.getAttribute("style").split("; "))
    line.data = line.data.replace("  ", _APART)
    family = style["font-family"].split(",")[0].strip("'")
    if not text.hasAttribute("x"):
        size, weight = float(style["font-size"].removesuffix("px")), style.get("font-weight", "normal")
        font = FontProperties(family=family, size=size, weight=weight)
        text.setAttribute("textLength", f"{text_to_path.get_text_width_height_descent(line.data, font, False)[0]}")
        text.setAttribute("lengthAdjust", "spacingAndGlyphs")
    style["font-family"] = _FONTS.get(family, style["font-family"])
    text.setAttribute("style", "; ".join(f"{name}: {value}" for name, value in style.items()))
    if _UPRIGHT.fullmatch(text.getAttribute("transform")):
        text.removeAttribute("transform")


def _drop_blanks(element: minidom.Element) -> None:
    for child in [*element.childNodes]:
        if isinstance(child, minidom.Text) and not child.data.strip():
            element.removeChild(child)
