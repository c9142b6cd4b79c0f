"""Judged questions from files: BEIR folders, TREC topics with qrels, CSV and JSON Lines in whatever form, mapped by names.

read_beir("cranfield/")                      queries.jsonl and qrels.tsv (or qrels/test.tsv)
read_trec("topics.txt", "qrels.txt")         <top> topics or `id TAB text` lines; `id 0 document grade` lines
read_rows("golden_set.jsonl", {"relevant": "relevant_docs", "traps": "trap_docs"})
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragdb.adapters import require
from ragdb.errors import ConfigError, UnreadableFile
from ragdb.evaluate.types import EvalQuestion, Judgement

if TYPE_CHECKING:
    from ragdb.rag import RagDB

#: What a field is called in files that nobody mapped; the first name that a row has counts.
NAMES: dict[str, tuple[str, ...]] = {
    "key": ("key", "qid", "_id", "id", "query_id", "question_id"),
    "question": ("question", "query", "text", "user_input"),
    "reference": ("reference", "reference_answer", "ground_truth", "expected_answer", "answer"),
    "relevant": ("relevant", "relevant_docs", "relevant_documents", "documents", "positive"),
    "traps": ("traps", "trap_docs", "trap_documents"),
    "quotes": ("quotes", "quote", "evidence"),
    "tags": ("tags", "category", "categories", "tag"),
    "language": ("language", "lang"),
    "where": ("where",),
    "paraphrase_of": ("paraphrase_of",),
}
#: Gains of nDCG grow with the grade, and so does the time that some metrics take.
MAX_GRADE = 10_000
#: A mapping's word for: the file has no such field.
NONE = "-"


@dataclass(frozen=True, slots=True)
class Read:
    """What a file held. `ignored`: names in it that stand for nothing here; `notes`: what was noticed, for people."""

    questions: tuple[EvalQuestion, ...]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def read_beir(folder: str | Path, *, split: str = "test") -> Read:
    """A folder in BEIR's layout. Questions without a judgement are left out, as BEIR does."""
    folder = Path(folder)
    qrels_file = next((p for p in (folder / "qrels" / f"{split}.tsv", folder / "qrels.tsv") if p.is_file()), None)
    if not (folder / "queries.jsonl").is_file() or qrels_file is None:
        raise ConfigError(f"{folder} is not in BEIR's layout: it has queries.jsonl and qrels.tsv, or qrels/{split}.tsv")
    judged: dict[str, dict[str, Judgement]] = {}
    for number, row in enumerate((line.rstrip("\r").split("\t") for line in _text(qrels_file).split("\n")), start=1):
        if row == [""] or (number == 1 and re.search("[a-z]", row[-1], re.I)):  # a head
            continue
        if len(row) not in (3, 4):
            raise ConfigError(f"{qrels_file}, line {number}: {len(row)} columns; it has question, document and grade")
        judged.setdefault(row[0], {})[row[-2]] = Judgement(row[-2], _grade(row[-1], qrels_file, number))
    questions = []
    for number, row_ in _json_lines(folder / "queries.jsonl"):
        if "_id" not in row_ or "text" not in row_:
            raise ConfigError(f"{folder / 'queries.jsonl'}, line {number} has no _id and text")
        if judgements := judged.pop(str(row_["_id"]), None):
            questions.append(EvalQuestion(str(row_["_id"]), str(row_["text"]), tuple(judgements.values())))
    notes = (f"{len(judged)} judged questions are not in queries.jsonl",) if judged else ()
    return Read(tuple(questions), notes=notes)


def read_trec(topics: str | Path, qrels: str | Path) -> Read:
    """TREC topics (`<top>` with `<num>` and `<title>`, or a line `id TAB text` each) and qrels (`id 0 document grade`)."""
    ir_measures = require("ir_measures", "eval")
    judged: dict[str, dict[str, Judgement]] = {}
    try:
        for row in ir_measures.read_trec_qrels(io.StringIO(_text(Path(qrels)))):
            judged.setdefault(row.query_id, {})[row.doc_id] = Judgement(row.doc_id, int(row.relevance))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{qrels} is no TREC qrels file ({error}); a line is: question 0 document grade") from error
    found = _topics(Path(topics))
    questions = [EvalQuestion(key, text, tuple(judged.get(key, {}).values())) for key, text in found if key in judged]
    unasked = judged.keys() - dict(found).keys()
    notes = [f"{len(unasked)} judged questions are not among the topics"] if unasked else []
    if left := len(found) - len(questions):
        notes.append(f"{left} topics have no judgement and are left out")
    return Read(tuple(questions), notes=tuple(notes))


def _topics(path: Path) -> list[tuple[str, str]]:
    text = _text(path)
    blocks = re.findall(r"<top>(.*?)(?:</top>|(?=<top>)|\Z)", text, re.S | re.I)
    if not blocks:
        rows = [line.split("\t", 1) for line in text.split("\n") if line.strip()]
        if any(len(row) != 2 for row in rows):
            raise ConfigError(f"{path} has neither <top> blocks nor lines of: id, a tab, the question")
        return [(key.strip(), question.strip()) for key, question in rows]
    found = []
    for block in blocks:
        # a field ends where the next tag begins: old topics close none
        fields = {name.lower(): said.strip() for name, said in re.findall(r"<(\w+)>([^<]*)", block)}
        key = re.sub(r"^Number:\s*", "", fields.get("num", ""), flags=re.I).strip()
        title = re.sub(r"^Topic:\s*", "", fields.get("title", ""), flags=re.I).strip()
        if not key or not title:
            raise ConfigError(f"a topic of {path} has no <num> or no <title>: {block.strip()[:80]!r}")
        found.append((key, " ".join(title.split())))
    return found


def read_rows(path: str | Path, mapping: Mapping[str, str] | None = None) -> Read:
    """CSV or JSON Lines (or one JSON list), a question a row; `mapping` says what a field is called there, `-`: it has none.

    `relevant` and `traps` are names of documents: a list, an object {document: grade}, objects with uri, grade, quote, label, or
    a text with `;` between. `quotes` are words of the document, where it names one document.
    """
    path = Path(path)
    mapping = dict(mapping or {})
    if unknown := sorted(mapping.keys() - NAMES.keys()):
        raise ConfigError(f"there is no field {', '.join(unknown)} to map; fields are {', '.join(NAMES)}")
    rows = list(_csv_rows(path) if path.suffix.lower() in (".csv", ".tsv") else _json_lines(path))
    if not rows:
        raise ConfigError(f"{path} has no rows")
    has: dict[str, None] = {}
    for _, row in rows:
        has |= dict.fromkeys(row)
    used = {name: _column(name, mapping, tuple(has), path) for name in NAMES}
    for name in ("question", "relevant"):
        if used[name] is None and mapping.get(name) != NONE:
            more = " (or, where nothing is judged: --map relevant=-)" if name == "relevant" else ""
            raise ConfigError(f"{path}: which column is {name}? It has {', '.join(has)}; say it: --map {name}=COLUMN{more}")
    questions = [_from_row(row, used, path, number) for number, row in rows]
    ignored = tuple(column for column in has if column not in used.values())
    notes = (
        ()
        if used["key"]
        else (
            "no column is the key, so questions are named by their lines, q2, q3, ...: imported again with lines in between, "
            "each one behind them takes the place of another (--map key=COLUMN)",
        )
    )
    return Read(tuple(questions), ignored, notes)


def _column(name: str, mapping: Mapping[str, str], has: Sequence[str], path: Path) -> str | None:
    if name in mapping:
        if mapping[name] == NONE:
            return None
        if mapping[name] not in has:
            raise ConfigError(f"{path} has no column {mapping[name]!r} for {name}; it has {', '.join(has)}")
        return mapping[name]
    return next((known for known in NAMES[name] if known in has and known not in mapping.values()), None)


def _from_row(row: Mapping[str, Any], used: Mapping[str, str | None], path: Path, number: int) -> EvalQuestion:
    given = {name: row.get(column) for name, column in used.items() if column is not None}
    place = f"{path}, line {number}"
    question = str(given.get("question") or "").strip()
    if not question:
        raise ConfigError(f"{place} has no question in {used['question']!r}")
    judgements = [*_judgements(given.get("relevant"), place), *_judgements(given.get("traps"), place, trap=True)]
    if quotes := [str(words) for words in _listed(given.get("quotes"), place)]:
        about = [j for j in judgements if j.grade > 0]
        if len(about) not in (1, len(quotes)):
            raise ConfigError(
                f"{place} has {len(quotes)} quotes for {len(about)} relevant documents; which stands in which? Give relevant as "
                'objects: [{"uri": "a.md", "quote": "..."}]'
            )
        per = about * len(quotes) if len(about) == 1 else about
        others = [j for j in judgements if j.grade <= 0]
        judgements = [replace(j, quote=words) for j, words in zip(per, quotes, strict=True)] + others
    where = given.get("where") or {}
    if isinstance(where, str):
        where = _parsed(where, place)
    if not isinstance(where, dict):
        raise ConfigError(f'{place}: where is {where!r}; it is an object, such as {{"lang": "en"}}')
    return EvalQuestion(
        key=_text_or_none(given.get("key")) or f"q{number}",
        question=question,
        judgements=_once(judgements, place),
        reference=_text_or_none(given.get("reference")),
        language=_text_or_none(given.get("language")),
        tags=tuple(str(tag) for tag in _listed(given.get("tags"), place)),
        where=where,
        paraphrase_of=_text_or_none(given.get("paraphrase_of")),
    )


def _once(judgements: Sequence[Judgement], place: str) -> tuple[Judgement, ...]:
    """Each judgement once. Raises ConfigError for a document, or words of it, that are judged in two ways."""
    found: dict[tuple[str, str | None, str | None], Judgement] = {}
    for one in judgements:
        if found.setdefault((one.uri, one.label, one.quote), one) != one:
            raise ConfigError(f"{place} judges {one.uri!r} twice, and not the same; keep one of the two")
    return tuple(found.values())


def _text_or_none(given: Any) -> str | None:
    return str(given).strip() or None if given is not None else None


def _judgements(given: Any, place: str, *, trap: bool = False) -> list[Judgement]:
    found = []
    for one in _listed(given, place):
        if isinstance(one, Mapping):
            uri = next((one[name] for name in ("uri", "document", "doc", "id") if one.get(name) not in (None, "")), None)
            if uri is None:
                raise ConfigError(f"{place} has a judgement without uri: {one!r}")
            grade = one.get("grade", one.get("relevance", 0 if trap else 1))
            found.append(
                Judgement(str(uri), _grade(grade, place), trap, *(_text_or_none(one.get(name)) for name in ("label", "quote")))
            )
        elif isinstance(one, tuple):
            found.append(Judgement(one[0], _grade(one[1], place), trap))
        elif one is None or isinstance(one, (bool, list)) or not str(one).strip():
            raise ConfigError(f"{place} has a judgement that names no document: {one!r}")
        else:
            found.append(Judgement(str(one), 0 if trap else 1, trap))
    return found


def _listed(given: Any, place: str) -> list[Any]:
    """A cell as a list: JSON, or a text with `;` between; an object is pairs of document and grade."""
    if given is None or given == "":
        return []
    if isinstance(given, str):
        text = given.strip()
        if text[:1] in "[{":
            return _listed(_parsed(text, place), place)
        return [part.strip() for part in text.split(";") if part.strip()]
    if isinstance(given, Mapping):
        return [given] if "uri" in given else list(given.items())
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {text[:60]!r} is no JSON ({error})") from error


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _grade(given: Any, place: Any, number: int | None = None) -> int:
    try:
        # 1.0 is what spreadsheets and some qrels write for 1
        number_ = float(given)
        if number_ != int(number_) or abs(number_) > MAX_GRADE:
            raise ValueError
        return int(number_)
    except (TypeError, ValueError, OverflowError):
        at = f"{place}, line {number}" if number else place
        raise ConfigError(f"{at}: the grade is {given!r}; it is a whole number to {MAX_GRADE:,}, 0 for not relevant") from None


def _csv_rows(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    text = _text(path)
    head = text.partition("\n")[0]
    # where the comma is the decimal sign, spreadsheets put semicolons between cells
    comma = ";" if ";" in head and "," not in head and "\t" not in head else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else comma)
    try:
        for row in reader:
            if None in row:
                raise ConfigError(
                    f"{path}, line {reader.line_num} has more cells than the head; a cell with {comma!r} in it stands in quotes"
                )
            cells = {str(name).strip(): cell for name, cell in row.items() if str(name).strip()}
            if any(cell and cell.strip() for cell in cells.values()):  # spreadsheets leave empty rows behind
                yield reader.line_num, cells
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num} cannot be read as CSV: {error}") from error


def _json_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    text = _text(path)
    # lines end at line feeds: JSON may have U+2028 and its like within a text
    if text.lstrip()[:1] == "[":
        rows = list(enumerate(_parsed(text, str(path)), start=1))
    else:
        rows = [(n, _parsed(line, f"{path}, line {n}")) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    for number, row in rows:
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number} is a {type(row).__name__}; a question is an object, one a line")
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"{path} is not UTF-8 (byte {error.start + 1}); convert the file, for example: iconv -f CP932 -t UTF-8"
        ) from error


def matched(rag: RagDB, collection: str, questions: Sequence[EvalQuestion]) -> tuple[list[EvalQuestion], list[str], int]:
    """Judgements by the uris of a collection: a name that is none, but is the file name of one document only, is that document.

    Returns the questions, the names that no document has, and how many names were matched by file name.
    """
    from ragdb.evaluate.how import about

    context = about(rag, collection)
    uris: set[str] = set()
    after = ""
    while rows := context.database.call("list_documents", collection=collection, how_many=5000, after_uri=after):
        uris |= {row["uri"] for row in rows}
        after = rows[-1]["uri"]
    by_name: dict[str, list[str]] = {}
    for uri in uris:
        place = Path(uri)
        for name in {place.name, place.stem, str(place.with_suffix(""))} if place.name else ():
            by_name.setdefault(name, []).append(uri)
    named = {j.uri for question in questions for j in question.judgements}
    other = {name: by_name[name][0] for name in named - uris if len(by_name.get(name, ())) == 1}
    found = [
        replace(question, judgements=tuple(replace(j, uri=other.get(j.uri, j.uri)) for j in question.judgements))
        for question in questions
    ]
    return found, sorted(named - uris - other.keys()), len(other)
