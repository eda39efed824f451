"""How answers are scored: metrics, averages, decoding of spans, what a record keeps."""
