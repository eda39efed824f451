"""Tokenizers, and fast encoding of sentences."""
