"""Shapes of tasks: how examples become inputs, what head answers them, how answers are scored."""
