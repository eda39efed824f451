"""Files of the store: how they are read, published, locked, and what lies beside them after a conflict."""
