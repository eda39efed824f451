"""Where text comes from: named corpora, folders, the user's own files."""
