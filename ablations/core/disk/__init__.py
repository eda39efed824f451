"""Files of the store: how they are read, published, locked, and what lies next to them after a conflict."""
