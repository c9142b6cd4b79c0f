"""Where runs lost what they should have found, question by question: funnels, rank moves, worst questions, contamination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ragdb.evaluate.figures import Shown
from ragdb.evaluate.measures import cut
from ragdb.evaluate.types import FUNNEL, EvalQuestion, EvalSet, Result
from ragdb.types import LEGS

#: The stages as `lost_at` names them: losing it in both legs is losing it at retrieve.
STAGES = ("indexed", "chunk", "retrieve", "fuse", "rerank", "freshen", "found", "validate", "pack", "cited")
_BUCKETS = ((1, 1, "1"), (2, 3, "2–3"), (4, 5, "4–5"), (6, 10, "6–10"), (11, None, "11+"))
_TOP = 5
_REFUSED = ("not_in_documents", "nothing_retrieved")


@dataclass(frozen=True, slots=True)
class Level:
    """A stage of a funnel: of `n` questions the evidence of `alive` came out; that of `lost` fell here.

    `leg`: one of the two searches beside each other; evidence may well be in one alone. `before`: lost here by the baseline.
    """

    stage: str
    alive: int
    n: int
    lost: int
    before: int | None
    leg: bool = False

    @property
    def share(self) -> float:
        return self.alive / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Funnel:
    """The stages of one run over `n` answerable questions; `unknown` more have no evidence to follow."""

    shown: Shown
    n: int
    unknown: int
    levels: tuple[Level, ...]
    most: str | None
    words: str


@dataclass(frozen=True, slots=True)
class Move:
    """The rank of the first relevant document of a question, before and after; None: not found."""

    question: EvalQuestion
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Moves:
    """All moves between two runs. `table[i][j]` questions went from bucket i to bucket j of `buckets`."""

    before: Shown
    after: Shown
    buckets: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]
    most: tuple[Move, ...]
    up: int
    down: int
    n: int


@dataclass(frozen=True, slots=True)
class Found:
    """A document in the order found, with what is known of it."""

    rank: int
    uri: str
    status: str
    relevant: bool
    trap: bool


@dataclass(frozen=True, slots=True)
class Worst:
    """A question that went badly; `before`: the baseline's score."""

    question: EvalQuestion
    result: Result
    score: float
    before: float | None
    found: tuple[Found, ...]
    missed: tuple[tuple[str, int | None], ...]
    strip: tuple[tuple[str, int | None, bool], ...]


@dataclass(frozen=True, slots=True)
class Dirt:
    """Questions with an archived document, a draft or a trap among the first `k` documents, of `n`."""

    shown: Shown
    k: int
    n: int
    archived: int
    draft: int
    trap: int


@dataclass(frozen=True, slots=True)
class Refusals:
    """Decisions to answer or not: `refused` of `hopeless` questions that no document answers, and of `answerable` ones."""

    shown: Shown
    hopeless: int
    rightly: int
    answerable: int
    wrongly: int
    examples: tuple[EvalQuestion, ...]


def funnels(eval_set: EvalSet, every: Sequence[Shown]) -> list[Funnel]:
    """One funnel a run; counts against the baseline where there is one."""
    answerable = {question.key for question in eval_set.questions if question.answerable}
    base = _lost(every[0]) if every[0].baseline else None
    return [_funnel(run, answerable, None if run.baseline else base) for run in every]


def _lost(run: Shown) -> Counter[str]:
    return Counter(lost for result in run.results.values() if result.funnel and (lost := result.lost_at))


def _funnel(run: Shown, answerable: set[str], base: Counter[str] | None) -> Funnel:
    followed = [result for key, result in run.results.items() if key in answerable and result.funnel]
    lost = Counter(at for result in followed if (at := result.lost_at))
    levels = []
    for stage in FUNNEL:
        if any(stage in result.funnel for result in followed):
            alive = sum(result.alive_after(stage) for result in followed)
            leg = stage in LEGS
            before = base[stage] if base is not None and not leg else None
            levels.append(Level(stage, alive, len(followed), lost[stage], before, leg))
        if stage == LEGS[-1] and any(level.leg for level in levels):
            before = base["retrieve"] if base is not None else None
            levels.append(Level("retrieve", sum(result.in_a_leg for result in followed), len(followed), lost["retrieve"], before))
    most = max(lost, key=lambda stage: (lost[stage], -STAGES.index(stage))) if lost else None
    return Funnel(
        run,
        len(followed),
        len(answerable & run.results.keys()) - len(followed),
        tuple(levels),
        most,
        _words(lost, most, len(followed), base),
    )


def _words(lost: Counter[str], most: str | None, n: int, base: Counter[str] | None) -> str:
    if not n:
        return "No answerable question has evidence that could be followed."
    if most is None:
        return f"Nothing was lost: the evidence of all {n} questions is alive at the end."
    words = f"Most was lost at {most}: {lost[most]} of {n}."
    if base is not None:
        rise = {stage: lost[stage] - base[stage] for stage in lost if lost[stage] > base[stage]}
        if rise:
            stage = max(rise, key=lambda stage: (rise[stage], -STAGES.index(stage)))
            words += f" Against the baseline {stage} loses {rise[stage]} more ({base[stage]} before)."
        else:
            words += " No stage loses more than at the baseline."
    return words


def first_rank(question: EvalQuestion, result: Result) -> int | None:
    """The rank of the first relevant document, from 1; None: not found."""
    relevant = question.relevant
    return next((rank for rank, uri in enumerate(result.documents, 1) if uri in relevant), None)


def moves(eval_set: EvalSet, before: Shown, after: Shown, most: int = 12) -> Moves:
    """How the first relevant document of each answerable question moved from one run to another."""
    every = [
        Move(question, first_rank(question, before.results[question.key]), first_rank(question, after.results[question.key]))
        for question in eval_set.questions
        if question.answerable and question.key in before.results and question.key in after.results
    ]
    table = [[0] * (len(_BUCKETS) + 1) for _ in range(len(_BUCKETS) + 1)]
    for move in every:
        table[_bucket(move.before)][_bucket(move.after)] += 1
    moved = [move for move in every if move.before != move.after]
    moved.sort(key=lambda move: (-abs(_worth(move.after) - _worth(move.before)), move.question.key))
    up = sum(_worth(move.after) > _worth(move.before) for move in moved)
    return Moves(
        before,
        after,
        (*(name for _, _, name in _BUCKETS), "not found"),
        tuple(map(tuple, table)),
        tuple(sorted(moved[:most], key=lambda move: _worth(move.after) - _worth(move.before))),
        up,
        len(moved) - up,
        len(every),
    )


def _bucket(rank: int | None) -> int:
    if rank is None:
        return len(_BUCKETS)
    return next(place for place, (_, last, _) in enumerate(_BUCKETS) if last is None or rank <= last)


def _worth(rank: int | None) -> float:
    return 0.0 if rank is None else 1 / rank  # from 1 to 3 matters more than from 31 to 33


def worst(eval_set: EvalSet, run: Shown, base: Shown | None, metric: str, most: int = 30) -> list[Worst]:
    """The questions with the lowest score; of equal ones those that fell most since the baseline first. Below 1 only."""
    scores, before = run.scores(metric), base.scores(metric) if base else {}
    known = eval_set.by_key()
    keys = sorted(
        (key for key in scores if scores[key] < 1), key=lambda key: (scores[key], scores[key] - before.get(key, 0.0), key)
    )
    return [_worst(known[key], run.results[key], scores[key], before.get(key)) for key in keys[:most]]


def _worst(question: EvalQuestion, result: Result, score: float, before: float | None) -> Worst:
    documents = result.documents
    ranks = {uri: rank for rank, uri in enumerate(documents, 1)}
    return Worst(
        question,
        result,
        score,
        before,
        found_first(question, result, _TOP),
        tuple((uri, ranks.get(uri)) for uri in question.relevant),
        tuple((stage, step.rank, step.alive) for stage in FUNNEL if (step := result.funnel.get(stage))),
    )


def found_first(question: EvalQuestion, result: Result, k: int) -> tuple[Found, ...]:
    """The first k documents, each with the status of its best chunk."""
    statuses: dict[str, str] = {}
    for uri, status in zip(result.uris, result.statuses, strict=True):
        statuses.setdefault(uri, status)
    relevant, traps = question.relevant, question.traps
    return tuple(
        Found(rank, uri, statuses[uri], uri in relevant, uri in traps) for rank, uri in enumerate(result.documents[:k], 1)
    )


def dirt(eval_set: EvalSet, every: Sequence[Shown], names: Sequence[str]) -> list[Dirt]:
    """What should not stand among the first k documents; k is that of the first contamination metric, or 5."""
    k = cut(names[0], _TOP) if names else _TOP
    known = eval_set.by_key()
    lines = []
    for run in every:
        tops = [found_first(known[key], result, k) for key, result in run.results.items()]
        archived, draft = (sum(any(one.status == status for one in top) for top in tops) for status in ("archived", "draft"))
        lines.append(Dirt(run, k, len(tops), archived, draft, sum(any(one.trap for one in top) for top in tops)))
    return lines


def refusals(eval_set: EvalSet, every: Sequence[Shown]) -> list[Refusals]:
    """Answered or refused, for the runs that answered; a model that failed is neither."""
    lines = []
    for run in every:
        said = [
            (question, run.results[question.key].outcome)
            for question in eval_set.questions
            if question.key in run.results and run.results[question.key].outcome in ("answered", *_REFUSED)
        ]
        hopeless = [(question, outcome) for question, outcome in said if not question.answerable]
        if not any(outcome == "answered" for _, outcome in said) and not any(outcome == _REFUSED[0] for _, outcome in said):
            continue  # a search, without an answer
        lines.append(
            Refusals(
                run,
                len(hopeless),
                sum(outcome in _REFUSED for _, outcome in hopeless),
                len(said) - len(hopeless),
                sum(outcome in _REFUSED for question, outcome in said if question.answerable),
                tuple(question for question, outcome in hopeless if outcome == "answered")[:10],
            )
        )
    return lines
