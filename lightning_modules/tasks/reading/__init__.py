"""From a task's texts to rows of pieces: lines, passages, spelling, windows, layout."""
