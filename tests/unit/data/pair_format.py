"""The format that the tests of pairs share."""

from lightning_modules.data import SegmentPairFormat


def segment_pairs(**knobs):
    """Short pairs, filled to their full length unless something else is asked."""
    return SegmentPairFormat(**{"sequence_length": 16, "short_fraction": 0.0} | knobs).resolved()
