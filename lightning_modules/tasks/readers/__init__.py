"""Readers of files that data sets share: tables and JSON lines, own splits."""
