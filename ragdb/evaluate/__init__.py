"""Evaluation: which stage lost the answer, which configuration is better, and no to a worse one."""
