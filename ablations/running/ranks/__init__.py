"""Pretrainings that several devices share: which there are, and a process for each of them."""
