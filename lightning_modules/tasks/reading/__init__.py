"""From files to rows of pieces: lines, passages, spelling, windows, layout, and back to one vector a text."""
