"""Questions drafted from the chunks of a collection, to be accepted by a person."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pytest

from ragdb import Document, RagDB
from ragdb.errors import ConfigError, LLMError
from ragdb.evaluate import sets
from ragdb.evaluate.drafting import Proposal, draft, summary
from ragdb.testing import FakeEmbedder, FakeLLM
from ragdb.types import Message

PAGE = (
    "# {name}\n\nThe keeper of the {name} tower is on duty from the first of March until the last day of November, and the lamp "
    "is lit at sunset. The key number {n} hangs behind the door of the kitchen, and whoever takes it writes the time into the book.\n"
)


def proposing(messages: Sequence[Message]) -> str:
    n = re.search(r"key number (\d+)", messages[0].content)
    name = re.search(r"the (\w+) tower", messages[0].content)
    assert n and name
    words = {
        "quote": f"key number {n[1]}",
        "question": f"{name[1]}: what opens it?",
        "answer": f"The key number {n[1]} opens it.",
    }
    return json.dumps(words)


@pytest.fixture
def towers(ragdb_url: str) -> Iterator[RagDB]:
    llm = FakeLLM(proposing)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=llm) as made:
        for n, name in enumerate(["Alder", "Birch", "Cedar", "Damson", "Elm", "Fir"], start=100):
            made.add(Document(f"{name.lower()}.md", PAGE.format(name=name, n=n), title=name, language="en"))
        made.add(Document("short.md", "# Short\n\nNothing here."))
        made.add(Document("old.md", PAGE.format(name="Oldest", n=999), status="archived"))
        sets.make(made, "towers")
        yield made


def test_drafts_are_spread_over_active_documents_and_say_where_they_come_from(towers: RagDB) -> None:
    seen: list[Proposal] = []
    found = draft(towers, "towers", how_many=4, progress=seen.append)
    assert len(found) == len({question.drafted_from for question in found}) == 4
    for question in found:
        (judgement,) = question.judgements
        stored = towers.get(judgement.uri)
        assert stored is not None and stored.document_id == question.drafted_from
        assert judgement.quote is not None and judgement.quote in str(stored.content)
        assert (question.state, question.drafted_by, question.language) == ("draft", FakeLLM().name, "en")
        assert question.reference and question.key.startswith("draft-")
    assert [proposal.question for proposal in seen] == found
    assert summary(seen) == "4 questions"
    assert draft(towers, "towers", how_many=4) == found  # nothing was stored: the same ones again


def test_a_second_round_goes_on_with_other_documents_and_repeats_no_question(towers: RagDB) -> None:
    first = draft(towers, "towers", how_many=4)
    sets.put_questions(towers, "towers", first)
    sets.set_state(towers, "towers", [first[0].key], "rejected")
    seen: list[Proposal] = []
    second = draft(towers, "towers", how_many=4, progress=seen.append)
    assert len(second) == 2
    assert not {q.question for q in first} & {q.question for q in second}
    assert next(proposal.refused for proposal in seen if proposal.refused).startswith("it is asked already")
    assert summary(seen) == "2 questions; refused: it is asked already (4)"
    sets.put_questions(towers, "towers", second)
    stored = sets.read(towers, "towers", states=("draft", "rejected"))
    assert len(stored.questions) == 6
    assert {q.judgements[0].uri for q in stored.questions} == {
        f"{n}.md" for n in ("alder", "birch", "cedar", "damson", "elm", "fir")
    }


def test_questions_are_of_the_sets_own_collection(towers: RagDB, ragdb_url: str) -> None:
    with RagDB(ragdb_url, collection="other", embedder=FakeEmbedder(), llm=FakeLLM(proposing)) as other:
        assert len(draft(other, "towers", how_many=2)) == 2


def test_a_proposal_that_is_refused_says_why_and_the_next_chunk_is_asked(towers: RagDB, ragdb_url: str) -> None:
    answers = iter(["nothing", "{", json.dumps({"quote": "", "question": "", "answer": ""})])

    def first_badly(messages: Sequence[Message]) -> str:
        return next(answers, None) or proposing(messages)

    seen: list[Proposal] = []
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM(first_badly)) as rag:
        assert len(draft(rag, "towers", how_many=2, progress=seen.append)) == 2
    assert [(proposal.refused or "").split(":")[0] for proposal in seen] == [
        "no JSON with a question",
        "no JSON with a question",
        "the model found nothing to ask about",
        "",
        "",
    ]
    assert seen[0].raw == "nothing"


def test_a_model_that_is_not_there_ends_it(towers: RagDB, ragdb_url: str) -> None:
    llm = FakeLLM(LLMError("nobody listens"))
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=llm) as rag:
        with pytest.raises(LLMError, match="nobody listens"):
            draft(rag, "towers")
        assert len(llm.calls) == 3


def test_what_is_missing_is_named(towers: RagDB, ragdb_url: str) -> None:
    with pytest.raises(ConfigError, match="how_many is 0"):
        draft(towers, "towers", how_many=0)
    with pytest.raises(ConfigError, match="'nosuch'"):
        draft(towers, "nosuch")
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag, pytest.raises(ConfigError, match="RAGDB_LLM"):
        draft(rag, "towers")
