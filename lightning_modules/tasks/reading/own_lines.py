"""What the lines of a user's own file have in common, whatever the shape: ids, and places in a text."""

import re

from lightning_modules.config import Settings, knob, required
from lightning_modules.tasks.reading.lines import Fault


class OwnLine(Settings):
    """The keys of one example in a user's own file; each shape adds its own."""

    id: str = knob("", "A name for the example. By default its line.")


class Mark(Settings):
    """A stretch of a text that is marked in it, such as an answer or a name."""

    text: str = required("The marked words, spelt as in the text.")
    start: int | None = knob(None, "Its first character, from 0. May be left out where it occurs once.", ge=0)

    def at(self, whole: str) -> tuple[int, int]:
        """Its first character in a text, and the character after its last.

        Raises:
            Fault: When it is not there, or occurs several times and says not where.
        """
        places = [found.start() for found in re.finditer(f"(?={re.escape(self.text)})", whole) if self.text.strip()]
        if not places:
            raise Fault(f"{self.text!r} does not occur in the text")
        start = places[0] if self.start is None else self.start
        if start not in places:
            raise Fault(
                f"the text at character {start} is {whole[start : start + len(self.text)]!r}, not {self.text!r}"
            )
        if self.start is None and len(places) > 1:
            raise Fault(f"{self.text!r} occurs {len(places)} times in the text: give its start, one of {places[:9]}")
        return start, start + len(self.text)
