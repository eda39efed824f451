"""Readers of data sets, and the table rows that define their tasks."""
