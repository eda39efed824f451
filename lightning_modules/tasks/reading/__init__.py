"""From files to rows of pieces: lines, passages, spelling, windows, layout."""
