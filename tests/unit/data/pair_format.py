"""The format that the tests of pairs share."""

from lightning_modules.data import InputFormat


def segment_pairs(**knobs):
    """Short pairs, filled to their full length unless something else is asked."""
    return InputFormat(kind="segment_pairs", **{"sequence_length": 16, "short_fraction": 0.0} | knobs).resolved()
