"""Rerankers: a score for each (question, passage). One file an adapter; the stage does windows, order, ties and fallbacks.

An adapter may say more than its scores: `max_tokens` (of question and passage together), `count_tokens(text)`,
`batch_size` (passages a call; between calls the time is looked at), and take `deadline` (seconds from now) in `score`.
"""
