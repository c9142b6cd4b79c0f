"""tune: which weights, rrf_k and candidates suit the questions of a set, and whether questions that chose nothing agree.

Each leg is asked once for each question, at the longest list of the grid; every setting is then the fusion of these lists,
cut to its `candidates`, by the formula of ragdb.rrf_fuse. Rewriters and rerankers take no part: fuse is what is fitted.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ragdb.db.caller import from_json
from ragdb.errors import ConfigError, EmbedderError
from ragdb.evaluate import measures, sets, statistics
from ragdb.evaluate.fusion_grid import Grid, Setting, neighbours
from ragdb.evaluate.types import Difference, EvalQuestion
from ragdb.pipeline import Pipeline
from ragdb.question import Question
from ragdb.types import LEGS, _Value

if TYPE_CHECKING:
    from ragdb.rag import RagDB

LEAST_QUESTIONS = 10

#: The metric of each question, by its key, under one setting.
Scores = Mapping[str, float]
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Fold(_Value):
    """What all questions but these `questions` chose, and how these do with it: the means of the metric."""

    chosen: Setting
    questions: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Tried(_Value):
    """A setting, its metric's mean over all questions, and the mean of it and its neighbours in the grid."""

    setting: Setting
    mean: float
    plateau: float


@dataclass(frozen=True, slots=True)
class Tuned(_Value):
    """What tuning found. `gain`: of questions that had no say in the choice, fold by fold, over the `current` settings.

    `chosen` is what all questions together choose; its mean in `tried`, best first, is flattered by that choice and `gain` is
    not. `seconds`: for everything.
    """

    eval_set: str
    collection: str
    model: str | None
    metric: str
    questions: int
    current: Setting
    chosen: Setting
    gain: Difference
    folds: tuple[Fold, ...]
    tried: tuple[Tried, ...]
    seconds: float
    stored: bool = False

    @property
    def certain(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return self.gain.low > 0

    @property
    def verdict(self) -> str:
        """The gain in one sentence."""
        gain = self.gain
        told = (
            f"{self.metric} of held-out questions {gain.change:+.4f}, "
            f"95 % interval {gain.low:+.4f} to {gain.high:+.4f}, p {gain.p:.3g}"
        )
        if self.certain:
            return told
        if self.chosen == self.current:
            return f"{told}: the current settings are the choice, no other can be told to be better"
        return f"{told}: the interval includes 0, so the current settings may be as good" if gain.high > 0 else f"{told}: no gain"


def tune(
    rag: RagDB,
    eval_set_name: str,
    *,
    metric: str = "ndcg@10",
    folds: int = 5,
    seed: int = 1,
    grid: Grid | None = None,
    store: bool = False,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Fits weights, rrf_k and candidates of fuse to the judged questions of a set, and measures the gain by cross-validation.

    The questions are those of the set that are accepted and have a relevant document, asked in the collection of `rag`, each
    with its own filter. They are dealt into `folds` by `seed`, paraphrases together. For each fold the best setting of the
    other questions is measured on those of the fold; `gain` compares that, question by question, with the settings that `rag`
    uses now. The best setting: each is taken with its neighbours in the grid (a peak that stands alone is luck), and of those
    within one standard error of the highest mean the one nearest to the defaults.

    `store` keeps what all questions choose for the collection (see `keep`, also for `force`). `progress(done, of)` is called
    after each question. Nothing is recorded as a run.

    Raises ConfigError for fewer than 10 such questions, fewer than 2 folds or more than questions, a pipeline with one leg, a
    wrong metric or grid, and, with `store`, a gain whose interval includes 0.
    """
    began = time.perf_counter()
    pipeline, model = _current(rag)
    grid = grid or Grid()
    questions = _judged(rag, eval_set_name)
    dealt = _dealt(questions, folds, seed)
    cut = _cut(metric)
    cells = grid.cells(cut or 1)
    current = Setting.of(pipeline)
    settings = [*cells.values(), current]
    longest = max(setting.candidates for setting in settings)
    ranked: dict[str, tuple[str, ...]] = {}
    under: list[dict[str, str]] = [{} for _ in settings]  # for each setting the key, in `ranked`, of what each question gets
    documents, options = _Documents(rag), [setting.to_dict() for setting in settings]
    for done, question in enumerate(questions, 1):
        lists = _lists(rag, pipeline, question, longest)
        known: dict[tuple[str, ...], str] = {}
        for place, found in enumerate(_rankings(rag, lists, options, documents, cut)):
            under[place][question.key] = known.setdefault(found, f"{done}/{len(known)}")
        ranked |= {key: found for found, key in known.items()}
        if progress is not None:
            progress(done, len(questions))
    # many settings give a question the same documents: each ranking is measured once
    qrels = {key: questions[int(key.partition("/")[0]) - 1].relevant for key in ranked}
    measured = measures.per_question([metric], qrels, ranked)
    scores = [{key: measured[one][metric] for key, one in keys.items()} for keys in under]
    by_place: dict[Place, Scores] = dict(zip(cells, scores, strict=False))
    held_out: dict[str, float] = {}
    told = []
    for fold in dealt:
        rest = [question.key for question in questions if question.key not in fold]
        chosen = _best(cells, by_place, rest)
        held_out |= {key: by_place[chosen][key] for key in fold}
        told.append(Fold(cells[chosen], len(fold), _mean(scores[-1], fold), _mean(by_place[chosen], fold)))
    keys = [question.key for question in questions]
    plateaus = _plateaus(by_place, keys)
    tried = [Tried(setting, _mean(by_place[place], keys), sum(plateaus[place]) / len(keys)) for place, setting in cells.items()]
    tuned = Tuned(
        eval_set=eval_set_name,
        collection=rag.context.collection,
        model=model,
        metric=metric,
        questions=len(questions),
        current=current,
        chosen=cells[_best(cells, by_place, keys)],
        gain=statistics.difference(metric, scores[-1], held_out),
        folds=tuple(told),
        tried=tuple(sorted(tried, key=lambda one: (-one.plateau, one.setting.distance))),
        seconds=time.perf_counter() - began,
    )
    return keep(rag, tuned, force=force) if store else tuned


def keep(rag: RagDB, tuned: Tuned, *, force: bool = False) -> Tuned:
    """Stores the chosen setting on the collection (ragdb.set_fusion): searches that say nothing else use it from now on.

    For the owner and writers. Raises ConfigError where the interval of the gain includes 0, unless `force`.
    """
    if not tuned.certain and not force:
        raise ConfigError(
            f"nothing is stored: {tuned.verdict}. The choice was {tuned.chosen}; judge more questions, or store it all the same "
            "with force=True (--force)"
        )
    gain = tuned.gain
    source = {
        "set": tuned.eval_set,
        "metric": tuned.metric,
        "questions": tuned.questions,
        "gain": round(gain.change, 6),
        "low": round(gain.low, 6),
        "high": round(gain.high, 6),
        "p": round(gain.p, 6),
        "model": tuned.model,
    }
    rag.context.database.call(
        "set_fusion", collection=rag.context.collection, fusion={**tuned.chosen.to_dict(), "source": source}
    )
    return replace(tuned, stored=True)


def forget(rag: RagDB) -> None:
    """Takes the stored settings of fuse from the collection: ragdb's own hold again."""
    rag.context.database.call("set_fusion", collection=rag.context.collection, fusion=None)


def _current(rag: RagDB) -> tuple[Pipeline, str | None]:
    """The pipeline with the settings of fuse that a question gets now, and the model whose vectors it searches."""
    from ragdb.ingest import collections

    info = collections.require(rag.context)
    pipeline = rag.pipeline.with_fusion(from_json(info["fusion"]))
    if {*pipeline.legs} != {*LEGS}:
        raise ConfigError(
            f"the pipeline {pipeline.name!r} has the legs {list(pipeline.legs)}: there is nothing to fuse; "
            f"tune one with {list(LEGS)}"
        )
    return pipeline, rag.context.reading(info)["model"]


def _judged(rag: RagDB, eval_set_name: str) -> list[EvalQuestion]:
    questions = [question for question in sets.read(rag, eval_set_name).questions if question.answerable]
    if len(questions) < LEAST_QUESTIONS:
        raise ConfigError(
            f"the set {eval_set_name!r} has {len(questions)} accepted questions with a relevant document; tuning by fewer than "
            f"{LEAST_QUESTIONS} fits chance. Judge more: some hundred give an interval that tells something"
        )
    return sorted(questions, key=lambda question: question.key)


def _dealt(questions: Sequence[EvalQuestion], folds: int, seed: int) -> list[frozenset[str]]:
    """The keys in `folds` parts of about the same size, a question and its paraphrases in one."""
    groups: dict[str, list[str]] = {}
    for question in questions:
        groups.setdefault(question.paraphrase_of or question.key, []).append(question.key)
    if not isinstance(folds, int) or not 2 <= folds <= len(groups):
        raise ConfigError(
            f"folds is {folds!r}; it is a whole number from 2 to the {len(groups)} questions that are no paraphrases"
        )
    order = sorted(groups)
    random.Random(seed).shuffle(order)  # noqa: S311  a deal, no secret
    parts: list[set[str]] = [set() for _ in range(folds)]
    for name in order:
        min(parts, key=len).update(groups[name])
    return [frozenset(part) for part in parts]


def _cut(metric: str) -> int | None:
    """How many documents a metric looks at; None where it names no number."""
    measures.check([metric])
    if metric.partition("@")[0] in ("contamination", "stability"):
        raise ConfigError(f"the metric is {metric!r}; tuning goes by one of relevance, such as ndcg@10 or recall@20")
    return measures.cut(metric, 0) or None


def _lists(rag: RagDB, pipeline: Pipeline, question: EvalQuestion, candidates: int) -> dict[str, list[int]]:
    """What each leg finds for a question, best first."""
    plain = replace(pipeline, rewrite=(), route=False, rerank=False, freshness=0.0, candidates=candidates, tuned=False)
    asked = Question(rag.context, plain, "search", question.question, k=1, where=question.where, writes=False)
    asked.found()
    if "retrieve" in asked.recorder.usage.get("fell_back", ()):
        failed = asked.recorder.usage.get("embedder_failed") or "its chunks do not all have their vectors"
        raise EmbedderError(f"question {question.key!r} could not be searched by vectors, so nothing is tuned: {failed}")
    return {trace.name: list(trace.chunk_ids) for trace in asked.recorder.stages if trace.stage == "retrieve"}


class _Documents:
    """The document and the text of each chunk: chunks of the same text count once in a search, the best of them."""

    def __init__(self, rag: RagDB) -> None:
        self._rag = rag
        self._known: dict[int, tuple[str, bytes]] = {}

    def learn(self, chunk_ids: Iterable[int]) -> None:
        if fresh := [i for i in chunk_ids if i not in self._known]:
            rows = self._rag.context.database.call("chunk_documents", chunk_ids=fresh)
            self._known |= {row["chunk_id"]: (row["uri"], bytes(row["text_hash"])) for row in rows}

    def ranked(self, chunk_ids: Iterable[int], most: int | None) -> tuple[str, ...]:
        """The first `most` documents (None: all), each where its best chunk stands."""
        uris: dict[str, None] = {}
        texts: set[bytes] = set()
        for chunk_id in chunk_ids:
            if chunk_id not in self._known:
                continue  # deleted in between
            uri, text = self._known[chunk_id]
            if text in texts:
                continue
            texts.add(text)
            uris[uri] = None
            if len(uris) == most:
                break
        return tuple(uris)


def _rankings(
    rag: RagDB, lists: Mapping[str, Sequence[int]], settings: Sequence[Mapping[str, Any]], documents: _Documents, most: int | None
) -> list[tuple[str, ...]]:
    """The first `most` documents of a question under each setting."""
    documents.learn({i for ids in lists.values() for i in ids})
    rows = rag.context.database.call("rrf_sweep", lists=dict(lists), settings=settings)
    found: list[tuple[str, ...]] = [()] * len(settings)
    for row in rows:
        found[row["setting"] - 1] = documents.ranked(row["chunk_ids"], most)
    return found


def _mean(scores: Scores, keys: Iterable[str]) -> float:
    values = [scores[key] for key in keys]
    return sum(values) / len(values)


def _plateaus(scores: Mapping[Place, Scores], keys: Sequence[str]) -> dict[Place, list[float]]:
    """For each setting, by question, the mean of its metric and that of its neighbours in the grid."""
    values = {place: [of[key] for key in keys] for place, of in scores.items()}
    found = {}
    for place, own in values.items():
        near = [own, *(values[n] for n in neighbours(place) if n in values)]
        found[place] = [sum(column) / len(near) for column in zip(*near, strict=True)]
    return found


def _best(cells: Mapping[Place, Setting], scores: Mapping[Place, Scores], keys: Sequence[str]) -> Place:
    """The setting nearest to the defaults of those that `keys` cannot tell from the highest plateau.

    That is the one-standard-error rule (Breiman et al. 1984, section 3.4.3), with the standard error of the paired differences.
    """
    plateaus = _plateaus(scores, keys)
    top = max(plateaus.values(), key=sum)
    near = [place for place, values in plateaus.items() if _as_good(top, values)]
    return min(near, key=lambda place: (cells[place].distance, -sum(plateaus[place]), place))


def _as_good(top: Sequence[float], values: Sequence[float]) -> bool:
    """Whether the mean difference is within its own standard error."""
    differences = [a - b for a, b in zip(top, values, strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    variance = sum((d - mean) ** 2 for d in differences) / max(1, n - 1)
    return mean <= math.sqrt(variance / n) + 1e-12
