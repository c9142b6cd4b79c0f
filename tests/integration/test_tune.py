"""tune: a leg that misleads loses its weight, the gain is that of questions that chose nothing, and it is kept only when told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ragdb import Document, Pipeline, RagDB, presets
from ragdb.errors import ConfigError, EmbedderError
from ragdb.evaluate import measures, sets
from ragdb.evaluate.fusion_grid import Grid, Setting
from ragdb.evaluate.tuning import forget, keep, tune
from ragdb.evaluate.types import EvalQuestion, Judgement
from ragdb.ingest import vector_sets
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]


class Misled(FakeEmbedder):
    """Vectors that say nothing about the text."""

    def _vector(self, text: str) -> list[float]:
        dice = random.Random(text)  # noqa: S311
        return super()._vector(" ".join(str(dice.random()) for _ in range(3)))


WORDS = [f"{a}{b}" for a in ("wom", "tar", "lin", "pod", "gri") for b in ("bat", "kel", "sup", "nor", "vex", "dum", "fay", "hoc")]
GRID = Grid(lexical=(0.0, 0.2, 0.5, 0.8, 1.0), rrf_k=(10, 60), candidates=(20, 50))


def fill(rag: RagDB, *, questions: int = 30) -> None:
    """Pages that share words; a question asks for two words that stand together in one page alone."""
    dice = random.Random(5)  # noqa: S311
    pages = [dice.sample(WORDS, 6) for _ in range(60)]
    for n, words in enumerate(pages):
        rag.add(Document(f"d{n:02d}", f"Notes about {' and '.join(words)}."))
    sets.make(rag, "golden")
    sets.put_questions(
        rag,
        "golden",
        [EvalQuestion(f"q{n:02d}", f"what of {pages[n][0]} {pages[n][1]}", (Judgement(f"d{n:02d}"),)) for n in range(questions)]
        + [EvalQuestion("none", "is there an answer", ())],
    )


@pytest.fixture
def misled(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=Misled(16)) as rag:
        yield rag


def test_the_model_that_is_noted_is_the_one_whose_vectors_were_searched(misled: RagDB) -> None:
    fill(misled)
    other = FakeEmbedder(8)
    vector_sets.add(misled, other.name)
    with RagDB(misled.context.database.target, collection="help", embedder=other) as new:
        with pytest.raises(EmbedderError, match="could not be searched by vectors, so nothing is tuned"):
            tune(new, "golden", grid=GRID)
        vector_sets.fill(misled, other.name)
        assert tune(new, "golden", grid=GRID).model == other.name


def test_a_leg_that_misleads_loses_its_weight(misled: RagDB) -> None:
    fill(misled)
    seen: list[tuple[int, int]] = []
    tuned = tune(misled, "golden", grid=GRID, progress=lambda done, of: seen.append((done, of)))
    assert tuned.questions == 30
    assert tuned.chosen.lexical > 0.5
    assert tuned.current == Setting.of(presets.hybrid)
    assert tuned.certain
    assert tuned.gain.change > 0.05
    assert sum(fold.questions for fold in tuned.folds) == tuned.gain.n == 30
    assert [done for done, _ in seen] == list(range(1, 31))
    assert not tuned.stored


def test_the_same_figures_come_out_twice(misled: RagDB) -> None:
    fill(misled)
    first, second = (tune(misled, "golden", grid=GRID).to_dict() for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


@pytest.mark.parametrize("metric", ["ndcg@10", "recall@5", "mrr@10"])
def test_what_is_measured_is_what_a_search_finds(misled: RagDB, metric: str) -> None:
    """The means of the grid are those of searches with the same settings."""
    fill(misled)
    first = misled.get("d00")
    assert first is not None
    misled.add(Document("copy", first.content))
    for one in tune(misled, "golden", metric=metric, grid=GRID).tried[::3]:
        pipeline = Pipeline(weights=one.setting.weights, rrf_k=one.setting.rrf_k, candidates=one.setting.candidates, tuned=False)
        questions = [q for q in sets.read(misled, "golden").questions if q.answerable]
        found = {q.key: [*dict.fromkeys(h.uri for h in misled.search(q.question, k=20, pipeline=pipeline))] for q in questions}
        values = measures.per_question([metric], {q.key: q.relevant for q in questions}, found)
        assert sum(v[metric] for v in values.values()) / len(values) == pytest.approx(one.mean, abs=1e-9), one.setting


def test_it_leaves_no_runs(misled: RagDB, query: Query) -> None:
    fill(misled)
    tune(misled, "golden", grid=GRID)
    assert query("select count(*) from ragdb.run") == [(0,)]
    assert query("select fusion from ragdb.collection") == [(None,)]


def test_stored_settings_are_used_from_then_on_and_are_what_the_next_gain_is_measured_against(
    misled: RagDB, query: Query
) -> None:
    fill(misled)
    tuned = tune(misled, "golden", grid=GRID, store=True)
    assert tuned.stored
    [(fusion,)] = query("select fusion from ragdb.collection")
    assert fusion["source"]["set"] == "golden"
    assert fusion["source"]["gain"] == pytest.approx(tuned.gain.change, abs=1e-6)
    stages = misled.search("wombat tarkel").stages
    assert f"k={tuned.chosen.rrf_k}" in next(s.note for s in stages if s.stage == "fuse")
    again = tune(misled, "golden", grid=GRID)
    assert again.current == tuned.chosen
    assert not again.certain
    forget(misled)
    assert query("select fusion from ragdb.collection") == [(None,)]


def test_a_gain_that_may_be_none_is_stored_only_by_force(misled: RagDB, query: Query) -> None:
    fill(misled, questions=12)
    tuned = tune(misled, "golden", grid=Grid(lexical=(0.5,), rrf_k=(60,), candidates=(50,)))
    assert (tuned.gain.change, tuned.certain) == (0, False)
    with pytest.raises(ConfigError, match="interval"):
        keep(misled, tuned)
    assert query("select fusion from ragdb.collection") == [(None,)]
    assert keep(misled, tuned, force=True).stored
    assert query("select fusion - 'source' from ragdb.collection") == [({"weights": {}, "rrf_k": 60, "candidates": 50},)]


def test_too_few_judged_questions_fit_nothing(misled: RagDB) -> None:
    fill(misled, questions=9)
    with pytest.raises(ConfigError, match="9 accepted questions with a relevant document"):
        tune(misled, "golden")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metric": "contamination@5"}, "relevance"),
        ({"metric": "nonsense@5"}, "nonsense"),
        ({"folds": 31}, "folds"),
        ({"grid": Grid(candidates=(5,))}, "below the 10"),
        ({"eval_set_name": "none"}, "none"),
    ],
)
def test_what_cannot_be_tuned_by_is_refused(misled: RagDB, given: dict[str, Any], said: str) -> None:
    fill(misled)
    with pytest.raises(ConfigError, match=said):
        tune(misled, **{"eval_set_name": "golden", **given})


def test_a_pipeline_with_one_leg_has_nothing_to_fuse(ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="help", embedder=Misled(16), pipeline=presets.naive) as rag:
        fill(rag, questions=10)
        with pytest.raises(ConfigError, match="nothing to fuse"):
            tune(rag, "golden")


def test_a_question_that_cannot_be_embedded_ends_it(ragdb_url: str) -> None:
    embedder = Misled(16)
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        fill(rag)
        embedder.fail = EmbedderError("the server is gone")
        with pytest.raises(EmbedderError, match="the server is gone"):
            tune(rag, "golden")
