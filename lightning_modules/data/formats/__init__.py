"""Input formats: how documents become sequences, running text or pairs of segments."""
