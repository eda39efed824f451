"""Corpora: named ones, folders, the user's own files."""
