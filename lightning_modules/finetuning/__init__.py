"""Pretrained encoders on tasks: trained with the task's head, or frozen as features."""
