"""Readers of data sets, and the rows that make tasks of them."""
