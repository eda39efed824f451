"""What is measured once, at the end of a training."""
