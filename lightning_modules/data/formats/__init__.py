"""Input formats: documents arranged as running text or as pairs of segments."""
