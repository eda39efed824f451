"""The return value of a study's methods: text for people, and the DataFrame behind it."""

import pandas as pd


class Shown:
    """Markdown, which a notebook renders and a terminal prints, with its numbers.

    Attributes:
        text: Markdown, with numbers rounded by their intervals.
        data: The same numbers and more, unrounded, one row per line of the table; empty without a table.
    """

    def __init__(self, text: str, data: pd.DataFrame | None = None) -> None:
        self.text = text
        self.data = pd.DataFrame() if data is None else data

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text
