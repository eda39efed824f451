"""Asking a language model without training it: how probable is a text, and how does it go on."""
