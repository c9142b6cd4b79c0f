"""Rewriters: the question to further search queries, by a language model. One file each, its prompt in `ragdb/prompts`.

What they write is searched with and nothing else: reranking, evidence and the answer keep to the user's own words.
"""
