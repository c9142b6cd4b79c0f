"""Judged questions from files of other programs, and what is said of files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragdb.errors import ConfigError, UnreadableFile
from ragdb.evaluate import exporting, importing
from ragdb.evaluate.types import EvalQuestion, EvalSet, Judgement


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_beir_folder_gives_its_judged_questions(tmp_path: Path) -> None:
    write(
        tmp_path / "queries.jsonl",
        '{"_id": "1", "text": "one?"}\n{"_id": "2", "text": "two?"}\n{"_id": "3", "text": "unjudged"}\n',
    )
    write(tmp_path / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\td1\t2\n1\td2\t0\n2\td3\t1\n9\td3\t1\n")
    read = importing.read_beir(tmp_path)
    assert read.questions == (
        EvalQuestion("1", "one?", (Judgement("d1", 2), Judgement("d2", 0))),
        EvalQuestion("2", "two?", (Judgement("d3", 1),)),
    )
    assert read.notes == ("1 judged questions are not in queries.jsonl",)
    write(tmp_path / "qrels/dev.tsv", "1\td1\tmany\n2\td1\tyes\n")
    with pytest.raises(ConfigError, match=r"line 2: the grade is 'yes'"):
        importing.read_beir(tmp_path, split="dev")
    with pytest.raises(ConfigError, match="not in BEIR's layout"):
        importing.read_beir(tmp_path / "qrels")


@pytest.mark.parametrize(
    "topics",
    [
        "<top>\n<num> Number: 301\n<title> Organized crime\n<desc> Description:\nWho?\n</top>\n<top>\n<num> Number: 302\n<title> Poliomyelitis\n</top>\n",
        "<top><num>301</num><title>Organized crime</title></top><top><num>302</num><title>Poliomyelitis</title></top>",
        "301\tOrganized crime\n302\tPoliomyelitis\n",
    ],
)
def test_trec_topics_in_their_forms(tmp_path: Path, topics: str) -> None:
    qrels = write(tmp_path / "qrels.txt", "301 0 FBIS3-1 1\n301 0 FBIS3-2 0\n")
    read = importing.read_trec(write(tmp_path / "topics.txt", topics), qrels)
    assert read.questions == (EvalQuestion("301", "Organized crime", (Judgement("FBIS3-1", 1), Judgement("FBIS3-2", 0))),)
    assert read.notes == ("1 topics have no judgement and are left out",)


def test_rows_are_mapped_by_their_usual_names_or_as_told(tmp_path: Path) -> None:
    usual = write(
        tmp_path / "golden.jsonl",
        json.dumps(
            {
                "qid": "H1",
                "query": "手当は？",
                "reference": "10,000 円",
                "relevant_docs": ["a", "b"],
                "trap_docs": ["c"],
                "category": "happy",
                "author": "me",
            }
        ),
    )
    read = importing.read_rows(usual)
    assert read.questions == (
        EvalQuestion(
            "H1",
            "手当は？",
            (Judgement("a"), Judgement("b"), Judgement("c", 0, trap=True)),
            reference="10,000 円",
            tags=("happy",),
        ),
    )
    assert read.ignored == ("author",)
    own = write(tmp_path / "own.csv", 'Frage,Seite,Wort\n"Was, bitte?",x.md; y.md,\nUnd?,,nix\n')
    told = importing.read_rows(own, {"question": "Frage", "relevant": "Seite"})
    assert [(q.key, q.question, q.relevant) for q in told.questions] == [
        ("q2", "Was, bitte?", {"x.md": 1, "y.md": 1}),
        ("q3", "Und?", {}),
    ]


def test_judgements_with_grades_quotes_and_labels(tmp_path: Path) -> None:
    rows = [
        {"question": "1?", "relevant": [{"uri": "a", "grade": 3, "quote": "the words"}, {"uri": "b", "label": "b#x#00"}]},
        {"question": "2?", "relevant": {"a": 2, "b": 0}},
        {"question": "3?", "relevant": "a", "quote": "these words", "where": {"lang": "en"}},
        {"question": "4?", "relevant": '["a", "b"]', "paraphrase_of": "q1"},
    ]
    read = importing.read_rows(write(tmp_path / "rows.json", json.dumps(rows)))
    assert [q.judgements for q in read.questions] == [
        (Judgement("a", 3, quote="the words"), Judgement("b", label="b#x#00")),
        (Judgement("a", 2), Judgement("b", 0)),
        (Judgement("a", quote="these words"),),
        (Judgement("a"), Judgement("b")),
    ]
    assert read.questions[2].where == {"lang": "en"}
    assert read.questions[3].paraphrase_of == "q1"
    # what is exported can be imported again
    lines = [json.dumps(row) for row in exporting.rows(EvalSet("s", "c", read.questions))]
    assert importing.read_rows(write(tmp_path / "again.jsonl", "\n".join(lines))).questions == read.questions


@pytest.mark.parametrize(
    ("text", "mapping", "said"),
    [
        ('{"question": "a?"}', {}, "which column is relevant.*relevant=-"),
        ('{"q": "a?", "relevant": []}', {}, "which column is question"),
        ('{"question": "a?", "relevant": []}', {"relevent": "x"}, "no field relevent to map"),
        ('{"question": "a?", "relevant": []}', {"relevant": "docs"}, "no column 'docs' for relevant; it has question, relevant"),
        ('{"question": " ", "relevant": []}', {}, "line 1 has no question"),
        ('{"question": "a?"\n', {}, "line 1: .*no JSON"),
        ("[1]", {}, "is a int"),
        ("", {}, "has no rows"),
        ('{"question": "a?", "relevant": [{"grade": 1}]}', {}, "judgement without uri"),
        ('{"question": "a?", "relevant": ["a", "b"], "quotes": ["x", "y", "z"]}', {}, "3 quotes for 2 relevant documents"),
    ],
)
def test_files_that_are_none_are_refused_with_what_to_do(tmp_path: Path, text: str, mapping: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        importing.read_rows(write(tmp_path / "rows.jsonl", text), mapping)


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "sjis.csv").write_bytes("質問,relevant\n手当,a\n".encode("cp932"))
    with pytest.raises(UnreadableFile, match=r"not UTF-8.*iconv"):
        importing.read_rows(tmp_path / "sjis.csv")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        importing.read_rows(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", '\ufeffquestion,relevant\r\n"What, is\r\nit?",a.md\r\n,\r\nbeta?,b c.md\r\n', ["What, is\r\nit?", "beta?"]),
        ("a.csv", 'question;relevant;\nalpha?;"a.md;b.md";\n', ["alpha?"]),
        ("a.jsonl", '{"question":"a\u2028b\x85c","relevant":["a.md"]}\r\n', ["a\u2028b\x85c"]),
    ],
)
def test_files_as_spreadsheets_and_programs_write_them(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert [question.question for question in importing.read_rows(tmp_path / name).questions] == expected


def test_numbers_as_names_and_grades(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 0, "question": "x", "relevant": [{"id": 0, "grade": 2.0, "quote": 5, "label": ""}]}\n', encoding="utf-8"
    )
    (found,) = importing.read_rows(path).questions
    assert (found.key, found.judgements) == ("0", (Judgement("0", 2, quote="5"),))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"question": "x", "relevant": [{"uri": "a", "grade": 1.5}]}', "grade is 1.5"),
        ('{"question": "x", "relevant": [{"uri": "a", "grade": 1e999}]}', "grade is inf"),
        ('{"question": "x", "relevant": ["a"], "where": [1]}', "where is"),
        ('{"question": "x", "relevant": ["a"], "traps": ["a"]}', "judges 'a' twice"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_rows_that_mean_nothing_are_named(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(row, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        importing.read_rows(path)


def test_a_beir_file_without_a_head_and_with_quotes_in_names(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "x"}\n', encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text('1\t"a" b.md\t1.0\r\n1\t0\tc.md\t0\r\n', encoding="utf-8")
    (found,) = importing.read_beir(tmp_path).questions
    assert found.judgements == (Judgement('"a" b.md', 1), Judgement("c.md", 0))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"question": "q", "relevant": ["a"], "where": {"x": NaN}}', "NaN is no number of JSON"),
        ('{"question": "q", "relevant": [null]}', "names no document: None"),
        ('{"question": "q", "relevant": [[]]}', "names no document"),
        ('{"question": "q", "relevant": {"a": 1000000}}', "a whole number to 10,000"),
    ],
)
def test_rows_that_would_be_read_as_something_else_are_refused(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        importing.read_rows(write(tmp_path / "a.jsonl", row + "\n"))


def test_rows_without_a_key_are_named_by_their_lines_and_that_is_said(tmp_path: Path) -> None:
    read = importing.read_rows(write(tmp_path / "a.csv", "question,relevant\none?,a.md\ntwo?,b.md\n"))
    assert [question.key for question in read.questions] == ["q2", "q3"]
    assert "--map key=COLUMN" in read.notes[0]
    assert not importing.read_rows(write(tmp_path / "b.csv", "id,question,relevant\na,one?,a.md\n")).notes
