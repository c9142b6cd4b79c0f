"""Retrieval metrics by ir-measures, and two that are about more than relevance: contamination and rank stability.

Documents are ranked by their best chunk. A metric's name is its measure and where the list is cut: `ndcg@10`,
`recall@20`, `precision@5` (or `p@5`), `mrr@10`, `map@100`, `success@1`, `contamination@5`, `stability@10`; any measure that
ir-measures knows can be named in its own way (`ERR@10`). `alive:cited` is 1 where evidence is alive after that stage of the
funnel, else 0; `fallback:rerank` is 1 where that stage fell back, for its model failed or was late.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from subprocess import SubprocessError
from typing import Any

from ragdb.adapters import require
from ragdb.errors import ConfigError
from ragdb.evaluate.types import FUNNEL, EvalQuestion, Result

#: What is measured where nothing else is asked for.
DEFAULT = ("ndcg@10", "recall@20", "precision@5", "mrr@10", "map@100", "contamination@5")
#: Less is better.
LOWER_IS_BETTER = ("contamination", "false_refusal", "fallback")
#: How the names of those scores begin that say that a stage fell back.
FALLBACK = "fallback:"
#: The stages that ask a model which may be away.
FALL_BACK = ("route", "rewrite", "rerank", "pack")

_NAME = re.compile(r"([a-z_]+)(?:@([1-9][0-9]{0,3}))?")
_THEIRS = {"ndcg": "nDCG", "recall": "R", "precision": "P", "p": "P", "mrr": "RR", "map": "AP", "success": "Success"}
_OURS = ("contamination", "stability")
# Stands for a list without documents, which the library would leave out of its means.
_NOTHING = "ragdb: nothing was found"


def stage_of(metric: str) -> str | None:
    """The stage of `alive:STAGE`; None for other metrics. Raises ConfigError for a stage that there is not."""
    kind, colon, stage = metric.partition(":")
    if not colon or kind != "alive":
        return None
    if stage not in FUNNEL:
        raise ConfigError(f"there is no stage {stage!r} to be alive after; there are {', '.join(FUNNEL)}")
    return stage


def fallback_of(metric: str) -> str | None:
    """The stage of `fallback:STAGE`; None for other metrics. Raises ConfigError for a stage that cannot fall back."""
    if not metric.startswith(FALLBACK):
        return None
    stage = metric.removeprefix(FALLBACK)
    if stage not in FALL_BACK:
        raise ConfigError(f"the stage {stage!r} of {metric} cannot fall back; those that can are {', '.join(FALL_BACK)}")
    return stage


def lower_is_better(metric: str) -> bool:
    return re.split("[@:]", metric, maxsplit=1)[0] in LOWER_IS_BETTER


def per_question(
    metrics: Sequence[str], qrels: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Each retrieval metric of each judged question: {key: {metric: value}}.

    `qrels` maps a question's key to its documents' grades, `ranked` to its documents, best first, each once. A question that
    has qrels and no documents scores 0. Raises ConfigError for a metric that is not known or cannot be computed, MissingExtra
    without ir-measures.
    """
    measures: dict[Any, list[str]] = {}
    for metric in metrics:
        if metric.split("@")[0] not in _OURS and stage_of(metric) is None:
            measures.setdefault(_parsed(metric), []).append(metric)
    found: dict[str, dict[str, float]] = {key: {} for key in qrels}
    if not measures or not qrels:
        return found
    ir_measures = require("ir_measures", "eval")
    # numbers for names: some of what the library calls reads files with blanks between columns, and knows numbers only
    keys, uris = list(qrels), _Numbers()
    # falling scores: the order of the list is the ranking, whatever its scores were
    run = {
        str(n): {uris[uri]: -float(rank) for rank, uri in enumerate(ranked.get(key) or (_NOTHING,))}
        for n, key in enumerate(keys, start=1)
    }
    judged = {str(n): {uris[uri]: grade for uri, grade in qrels[key].items()} for n, key in enumerate(keys, start=1)}
    try:
        for one in ir_measures.iter_calc(list(measures), judged, run):
            found[keys[int(one.query_id) - 1]] |= dict.fromkeys(measures[one.measure], float(one.value))
    except (AssertionError, ValueError, OSError, SubprocessError) as error:
        names = ", ".join(name for of_one in measures.values() for name in of_one)
        raise ConfigError(f"{names} cannot be computed: {error}; a metric has a k, such as recall@20") from error
    return found


class _Numbers(dict[str, str]):
    """A number for each name, from d1."""

    def __missing__(self, name: str) -> str:
        self[name] = number = f"d{len(self) + 1}"
        return number


def contamination(result: Result, question: EvalQuestion, k: int) -> float:
    """The share of the first `k` documents that should not be there: archived, draft, or judged a trap. 0 of nothing is 0."""
    status = dict(zip(reversed(result.uris), reversed(result.statuses), strict=True))
    first = result.documents[:k]
    wrong = [uri for uri in first if status[uri] != "active" or uri in question.traps]
    return len(wrong) / len(first) if first else 0.0


def stability(questions: Sequence[EvalQuestion], ranked: Mapping[str, Sequence[str]], k: int) -> dict[str, float]:
    """How alike the lists of paraphrases are: each question's mean average overlap with the others of its group, 0 to 1.

    Average overlap of two lists to depth k: the mean over depths 1..k of the share that both have (Fagin, Kumar and Sivakumar
    2003; Webber, Moffat and Zobel 2010, section 2). Where both lists are shorter than k, to the depth of the longer one: a list
    is as stable as can be when it comes again. Questions without a paraphrase are left out.
    """
    groups: dict[str, list[str]] = {}
    for question in questions:
        if question.key in ranked:
            groups.setdefault(question.paraphrase_of or question.key, []).append(question.key)
    found: dict[str, list[float]] = {}
    for keys in groups.values():
        for one, other in combinations(keys, 2):
            alike = average_overlap(ranked[one], ranked[other], k)
            found.setdefault(one, []).append(alike)
            found.setdefault(other, []).append(alike)
    return {key: sum(values) / len(values) for key, values in found.items()}


def average_overlap(one: Sequence[str], other: Sequence[str], k: int) -> float:
    """See `stability`. Two empty lists are the same list."""
    depth = min(k, max(len(one), len(other)))
    if not depth:
        return 1.0
    return sum(len({*one[:d]} & {*other[:d]}) / d for d in range(1, depth + 1)) / depth


def cut(metric: str, default: int = 10) -> int:
    """The k of `ndcg@k`."""
    name = _NAME.fullmatch(metric.strip().lower())
    return int(name[2]) if name and name[2] else default


def check(metrics: Sequence[str]) -> None:
    """Raises ConfigError for a name that means nothing, or a metric that cannot be computed here."""
    for metric in metrics:
        if stage_of(metric) is not None:
            continue
        if fallback_of(metric) is not None:
            raise ConfigError(f"{metric} is no column: it is told under the table where it is not 0; gate --max-drop takes it")
        if metric.split("@")[0] in _OURS:
            if not re.fullmatch(r"[a-z]+@[1-9][0-9]{0,3}", metric):
                raise ConfigError(f"the metric is {metric!r}; it has a k from 1 to 9999, such as {metric.split('@')[0]}@5")
        else:
            _try(metric)


@lru_cache(maxsize=64)
def _try(metric: str) -> None:
    per_question([metric], {"q": {"a": 1}}, {"q": ["a"]})


def _parsed(metric: str) -> Any:
    ir_measures = require("ir_measures", "eval")
    name = _NAME.fullmatch(metric.strip().lower())
    theirs = metric
    if name and name[1] in _THEIRS:
        theirs = _THEIRS[name[1]] + (f"@{name[2]}" if name[2] else "")
    try:
        return ir_measures.parse_measure(theirs)
    except (ValueError, NameError, KeyError, SyntaxError) as error:
        ours = ", ".join(f"{known}@k" for known in (*_THEIRS, *_OURS))
        raise ConfigError(f"there is no metric {metric!r}; there are {ours}, and those of ir-measures, such as ERR@10") from error
