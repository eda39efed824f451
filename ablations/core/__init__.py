"""The base of all other packages: records on disk, strict YAML, statistics, formatting, provenance."""
