"""What all others stand on: records on disk, strict YAML, statistics, formatting, provenance."""
