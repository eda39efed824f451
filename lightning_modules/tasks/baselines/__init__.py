"""Methods without a network that a shape of tasks is compared with."""
