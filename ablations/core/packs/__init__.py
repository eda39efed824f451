"""Packs: all that a machine without corpora and network needs in one file, and results that come home in one."""
