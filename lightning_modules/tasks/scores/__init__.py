"""Scoring of answers: metrics, averages, decoding of spans, what a record keeps per example."""
