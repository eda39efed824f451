"""What the methods of a study return: text for people, and a DataFrame to go on from."""

import pandas as pd


class Shown:
    """Markdown that a notebook renders and a terminal prints, with the numbers behind it.

    Attributes:
        text: Markdown, its numbers rounded to what their intervals allow.
        data: The same numbers and more, a row a line of the table and nothing rounded; empty where there is no table.
    """

    def __init__(self, text: str, data: pd.DataFrame | None = None) -> None:
        self.text = text
        self.data = pd.DataFrame() if data is None else data

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text
