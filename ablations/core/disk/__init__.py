"""Files of the store: how they are read, published, locked."""
