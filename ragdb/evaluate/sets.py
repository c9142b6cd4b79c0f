"""Sets of judged questions: kept in tables, read as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragdb.db.caller import Row, from_json, one, value
from ragdb.errors import ConfigError
from ragdb.evaluate.runs import is_number
from ragdb.evaluate.types import EvalQuestion, EvalSet, Judgement, State
from ragdb.ingest.clean import clean_text

if TYPE_CHECKING:
    from ragdb.rag import RagDB

_BATCH = 500  # questions a call


@dataclass(frozen=True, slots=True)
class Put:
    """What became of questions that were put into a set; those of `changed` are other now than they were."""

    added: int
    changed: int
    judgements: int


def make(
    rag: RagDB, name: str, *, collection: str | None = None, description: str | None = None, source: str | None = None
) -> None:
    """Makes a set about a collection (the RagDB's own by default), or changes what is given of it.

    Raises ConfigError for a name that is blank, longer than 200 characters, of more than a line, or a number, as runs have.
    """
    if not name.strip() or name != name.strip() or len(name) > 200 or not name.isprintable() or is_number(name):
        raise ConfigError(
            f"the set's name is {name[:80]!r}; it is one line of 1 to 200 characters, no blanks around it, and no number, as "
            "runs have. Give it another one (--set)"
        )
    rag.context.database.call(
        "put_eval_set", name=name, collection=collection or rag.context.collection, description=description, source=source
    )


def put_questions(rag: RagDB, eval_set: str, questions: Iterable[EvalQuestion]) -> Put:
    """Adds questions, or changes those of the same key; the judgements given take the place of those there were.

    Texts are cleaned as those of documents are. Raises ConfigError for a set that is not there, a key that comes twice, an empty
    key or question, a trap that is relevant and the same judged twice; then nothing is stored.
    """
    given = list(questions)
    seen: set[str] = set()
    for question in given:
        if not question.key.strip() or not question.question.strip():
            raise ConfigError(f"a question has the key {question.key!r} and the text {question.question[:60]!r}; both are needed")
        if question.key in seen:
            raise ConfigError(f"the key {question.key!r} comes twice; the key of a question is its own in a set")
        _check_judgements(question)
        seen.add(question.key)
    before = _by_key(rag, eval_set)
    judgements = 0
    for start in range(0, len(given), _BATCH):
        rows = [_as_json(question) for question in given[start : start + _BATCH]]
        row = one(rag.context.database.call("put_eval_questions", eval_set=eval_set, questions={"questions": rows}))
        judgements += row["judgements"]
    after = _by_key(rag, eval_set)
    changed = sum(before[key] != after[key] for key in before.keys() & after.keys())
    return Put(len(after.keys() - before.keys()), changed, judgements)


def read(rag: RagDB, name: str, *, states: Sequence[State] = ("accepted",)) -> EvalSet:
    """A set with its questions in these states, by key. Raises ConfigError, with the names there are, where it is not there."""
    rows = rag.context.database.call("eval_questions", eval_set=name, states={"states": list(states)})
    (row,) = (row for row in listed(rag) if row["name"] == name)
    questions = tuple(_question(row) for row in rows)
    return EvalSet(name, row["collection"], questions, row["description"], row["source"], row["created_at"])


def _by_key(rag: RagDB, name: str) -> dict[str, EvalQuestion]:
    """Every question of a set, whatever its state."""
    return read(rag, name, states=("accepted", "draft", "rejected")).by_key()


def listed(rag: RagDB) -> list[Row]:
    """Every set by name: name, collection, description, source, questions, answerable, drafts, runs, created_at."""
    return rag.context.database.call("eval_sets")


def quotes_not_found(rag: RagDB, name: str) -> list[str]:
    """Keys of questions with a quote or label that no chunk of its document holds, in the collection of `rag`."""
    rows = rag.context.database.call("eval_evidence", eval_set=name, collection=rag.context.collection)
    lost = (row["key"] for row in rows if row["kind"] != "document" and row["document_id"] is not None and not row["chunk_ids"])
    return list(dict.fromkeys(lost))


def unknown_paraphrases(rag: RagDB, name: str) -> list[str]:
    """Keys of questions that repeat, they say, a question that the set does not have in any state."""
    every = _by_key(rag, name)
    return [key for key, question in every.items() if question.paraphrase_of and question.paraphrase_of not in every]


def set_state(rag: RagDB, name: str, keys: Sequence[str], state: State) -> int:
    """Accepts or rejects questions; returns how many there were of them."""
    return int(value(rag.context.database.call("set_eval_state", eval_set=name, keys={"keys": list(keys)}, state=state)))


def delete(rag: RagDB, name: str) -> dict[str, int]:
    """Deletes a set with its questions, runs and results; returns counts of questions and runs."""
    found: dict[str, int] = from_json(value(rag.context.database.call("delete_eval_set", name=name)))
    return found


def _check_judgements(question: EvalQuestion) -> None:
    seen = set()
    for judgement in question.judgements:
        if judgement.trap and judgement.grade > 0:
            raise ConfigError(
                f"{question.key!r} has the trap {judgement.uri!r} with the grade {judgement.grade}; a trap has 0 or less"
            )
        if not judgement.uri:
            raise ConfigError(f"{question.key!r} has a judgement without the uri of a document")
        what = (judgement.uri, judgement.label or None, (judgement.quote or "").strip() or None)
        if what in seen:
            raise ConfigError(f"{question.key!r} has {judgement.uri!r} judged twice; keep one of the two")
        seen.add(what)


def _as_json(question: EvalQuestion) -> dict[str, Any]:
    given: dict[str, Any] = _cleaned(question.to_dict())
    del given["eval_question_id"]
    return given


def _cleaned(value: Any) -> Any:
    """Texts as documents have them (no NUL, no lone surrogate, line feeds), so that a quote still stands in its document."""
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(held) for name, held in value.items()}
    return [_cleaned(held) for held in value] if isinstance(value, (list, tuple)) else value


def _question(row: Row) -> EvalQuestion:
    return EvalQuestion(
        key=row["key"],
        question=row["question"],
        judgements=tuple(Judgement(**given) for given in from_json(row["judgements"])),
        reference=row["reference"],
        language=row["language"],
        tags=tuple(row["tags"]),
        where=from_json(row["where"]),
        paraphrase_of=row["paraphrase_of"],
        state=row["state"],
        drafted_from=row["drafted_from"],
        drafted_by=row["drafted_by"],
        eval_question_id=row["eval_question_id"],
    )
