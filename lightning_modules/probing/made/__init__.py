"""Probes made from held-out text by rules: no parser, no labels from elsewhere."""
