"""A pretrained encoder on a task: trained with the task's head, or frozen and read."""
