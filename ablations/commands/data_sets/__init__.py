"""What ``ablations data`` lists and measures."""
