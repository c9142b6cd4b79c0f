"""Runs and judgements as TREC files, for trec_eval and its kin."""

from __future__ import annotations

from collections.abc import Iterator

from ragdb.errors import ConfigError
from ragdb.evaluate.types import EvalRun, EvalSet


def trec_run(run: EvalRun) -> Iterator[str]:
    """Lines `question Q0 document rank score name`; documents by their best chunk, scores falling by one a rank.

    Raises ConfigError for a name with blanks in it, which the format cannot hold.
    """
    tag = run.name.replace(" ", "_")
    for result in run.results:
        documents = result.documents
        for rank, uri in enumerate(documents, start=1):
            yield f"{_word(result.key)} Q0 {_word(uri)} {rank} {len(documents) - rank + 1} {tag}"


def trec_qrels(eval_set: EvalSet) -> Iterator[str]:
    """Lines `question 0 document grade`; a document with several judgements has its highest grade."""
    for question in eval_set.questions:
        grades: dict[str, int] = {}
        for judgement in question.judgements:
            grades[judgement.uri] = max(judgement.grade, grades.get(judgement.uri, judgement.grade))
        for uri, grade in grades.items():
            yield f"{_word(question.key)} 0 {_word(uri)} {grade}"


def _word(name: str) -> str:
    if not name or any(char.isspace() for char in name):
        raise ConfigError(f"{name!r} has blanks, and TREC's files have blanks between their columns; give it another name")
    return name


def rows(eval_set: EvalSet) -> Iterator[dict[str, object]]:
    """The questions as rows that `ragdb eval import` reads."""
    for question in eval_set.questions:
        judged = [
            {k: v for k, v in j.to_dict().items() if v is not None and k != "trap"} for j in question.judgements if not j.trap
        ]
        traps = [{k: v for k, v in j.to_dict().items() if v is not None and k != "trap"} for j in question.judgements if j.trap]
        yield {
            "key": question.key,
            "question": question.question,
            "relevant": judged,
            "traps": traps,
            "reference": question.reference,
            "tags": list(question.tags),
            "language": question.language,
            "where": dict(question.where),
            "paraphrase_of": question.paraphrase_of,
        }
