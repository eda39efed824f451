"""Probes: what the frozen states of a pretrained model hold, read by ridge regression next to three controls."""
