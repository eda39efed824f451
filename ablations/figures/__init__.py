"""Figures, drawn by matplotlib without pyplot."""
