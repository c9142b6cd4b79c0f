"""What hostile or unlucky use once broke stays mended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ragdb import Document, Pipeline, RagDB
from ragdb.errors import BadDocument, BadFilter, ConfigError, EmbedderMismatch
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)


def test_a_model_recorded_by_another_program_meanwhile_is_noticed(ragdb_url: str, query: Query) -> None:
    late = RagDB(ragdb_url, collection="m", embedder=FakeEmbedder(16))
    late.context.embedder()  # looked before the collection was made
    with RagDB(ragdb_url, collection="m", embedder=FakeEmbedder()) as rag:
        rag.add(Document("b", "okapi"))
    with pytest.raises(EmbedderMismatch, match=r"8.*16"):
        late.add(Document("a", "zebra"))
    with pytest.raises(EmbedderMismatch):
        late.search("zebra")
    assert query("select count(*) from ragdb.document") == [(1,)]
    late.close()


def test_adding_the_old_text_while_a_worker_finishes_the_new_one_wins(rag: RagDB, ragdb_url: str) -> None:
    rag.add(Document("p", "old text"))
    db = rag.context.database
    db.call("put_document", collection="help", document={"uri": "p", "content": "new text"})
    job = db.call("claim_jobs", worker="w")[0]
    held = {"job_id": job["job_id"], "lease_token": job["lease_token"]}
    pieces = {
        "sections": [],
        "chunks": [{"ordinal": 0, "content": "new text", "context": "", "start": 0, "end": 8, "label": "p#top#00"}],
    }
    db.call("cut_job", **held, chunking="x", pieces=pieces)
    chunk_id = db.call("chunks_to_embed", document_id=job["document_id"], revision=job["revision"])[0]["chunk_id"]
    db.call("store_vectors", **held, chunk_ids=[chunk_id], numbers=[1.0] * 8)
    result: list[Any] = []
    with psycopg.connect(ragdb_url) as worker:
        worker.execute("select ragdb.finish_job(%s, %s)", [job["job_id"], job["lease_token"]])
        thread = threading.Thread(target=lambda: result.append(rag.add(Document("p", "old text"))))
        thread.start()
        thread.join(0.5)
        worker.commit()
        thread.join(30)
    stored = rag.get("p")
    assert stored is not None
    assert (stored.content, result[0].ingest_state, result[0].changed) == ("old text", "ready", True)


def test_a_number_that_json_cannot_hold_is_no_filter(rag: RagDB) -> None:
    rag.add(Document("public", "okapi secret"))
    for where in ({"tenant": float("nan")}, {"any": [{"tenant": float("inf")}]}):
        with pytest.raises(BadFilter):
            rag.search("okapi", where=where)
    with pytest.raises(BadFilter):
        rag.search("okapi", where="x")  # type: ignore[arg-type]
    with pytest.raises(BadFilter, match="500"):
        rag.search("okapi", where={"any": [{"a": 1}] * 600})


def test_options_that_are_null_keep_k(rag: RagDB, query: Query) -> None:
    for n in range(8):
        rag.add(Document(f"d{n}", f"wind speed {n}"))
    assert query("select count(*) from ragdb.search('wind speed', 'help', 3, '{}', null, null)") == [(3,)]
    for options in ("[]", '{"legs": ["foo"]}'):
        with pytest.raises(psycopg.DatabaseError) as caught:
            query("select * from ragdb.search('wind', 'help', 3, '{}', null, %s::jsonb)", options)
        assert caught.value.sqlstate == "RD004"


def test_sql_and_python_agree_on_deep_pages(rag: RagDB, query: Query) -> None:
    for n in range(130):
        rag.add(Document(f"d{n}", f"wind speed {n % 11} at mast {n}"))
    hits = rag.search("wind speed 3", k=60, offset=20).hits
    rows = query("""select chunk_id from ragdb.search('wind speed 3', 'help', 60, options => '{"offset": 20}')""")
    assert [i for (i,) in rows] == [h.chunk_id for h in hits]


def test_a_closed_object_may_be_used_again(rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    assert rag.ask("okapi").outcome
    rag.close()
    assert rag.search("okapi")[0].uri == "a"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own_connections(rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    rag.search("okapi")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if rag.search("okapi again")[0].uri == "a" else 3)
        except BaseException:  # noqa: BLE001
            os._exit(4)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert rag.search("okapi")[0].uri == "a"


def test_an_interrupted_add_can_be_repeated_at_once(ragdb_url: str) -> None:
    embedder = FakeEmbedder(fail=KeyboardInterrupt())
    with RagDB(ragdb_url, collection="help", embedder=embedder) as rag:
        with pytest.raises(KeyboardInterrupt):
            rag.add(Document("a", "okapi"))
        embedder.fail = None
        assert rag.add(Document("a", "okapi")).ingest_state == "ready"


def test_adding_and_deleting_the_same_document_at_once_raises_nothing(rag: RagDB) -> None:
    rag.add(Document("other", "text"))
    errors: list[BaseException] = []

    def repeat(work: Callable[[int], Any]) -> None:
        try:
            for n in range(25):
                work(n)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    works = [
        lambda n: rag.add(Document("x", f"text {n}")),
        lambda n: rag.add(Document("x", f"words {n}")),
        lambda _n: rag.delete("x"),
    ]
    threads = [threading.Thread(target=repeat, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert [e for e in errors if "deleted meanwhile" not in str(e)] == []


def test_a_space_in_the_url_reaches_the_server(ragdb_url: str) -> None:
    with (
        RagDB(ragdb_url + "&options=-c%20statement_timeout%3D50s&application_name=mine", embedder=FakeEmbedder()) as rag,
        rag.context.database.connection() as caller,
    ):
        assert caller.connection.execute("show statement_timeout").fetchone() == ("50s",)
        assert caller.connection.execute("show application_name").fetchone() == ("mine",)


def test_search_works_with_old_string_literals(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "Reset the router in 京都"))
    query("set standard_conforming_strings = off")
    assert query("select uri from ragdb.search('router 京都', 'help')") == [("a",)]


def test_only_iso_times_are_times(rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    for value in ("10/11/2012", "now", "infinity", "tomorrow"):
        with pytest.raises(BadFilter, match=value):
            rag.search("okapi", where={"updated_at": {"gte": value}})


@pytest.mark.parametrize("wrong", [{"k": 1.5}, {"k": None}, {"k": True}, {"k": 0}, {"offset": 10**12}])
def test_wrong_numbers_are_named(rag: RagDB, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        rag.search("okapi", **wrong)


def test_a_chunk_that_is_no_span_is_refused(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "okapi"))
    chunk = '{"ordinal": 0, "content": "WRONG", "context": "", "start": -3, "end": 500, "label": "x"}'
    with pytest.raises(psycopg.DatabaseError) as caught:
        query(
            f"""select * from ragdb.put_document('help', '{{"uri": "b", "content": "hello", "chunking": "x", "chunks": [{chunk}]}}')"""
        )
    assert caught.value.sqlstate == "RD006"
    with pytest.raises((BadDocument, ConfigError)):
        rag.add(Document("漢" * 5000, "text"))


def test_documents_that_wait_are_said_to_wait(rag: RagDB) -> None:
    rag.context.ensure_collection(rag.context.database)
    rag.context.database.call("submit_document", collection="help", uri="w", content="wombats dig burrows")
    answer = rag.ask("When do wombats dig?")
    assert answer.outcome == "nothing_retrieved"
    assert "1" in answer.text
    assert "worker --once" in answer.text


def test_nobody_can_slip_a_function_into_the_owners_search(ragdb_url: str, query: Query, rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    query("do $$ begin if to_regrole('mal') is null then create role mal; end if; end $$")
    query("grant usage on schema ragdb to mal")
    query("grant create, usage on schema public to mal")
    query("grant execute on all functions in schema ragdb to mal")
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute("set role mal")
        for signature in (
            "format(text, text)",
            "format(text, text, text)",
            "jsonb_build_object(text, jsonb)",
            "jsonb_build_array(jsonb)",
        ):
            name = signature.split("(")[0]
            returns = "text" if name == "format" else "jsonb"
            conn.execute(
                f"create function public.{signature} returns {returns} language plpgsql as $$ begin raise exception 'run as %', current_user; end $$"
            )  # type: ignore[arg-type]
        conn.execute("select * from ragdb.search('okapi', 'help', 3, '{\"title\": \"x\", \"n\": 1}')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select * from ragdb.chunk")


# --- what a review of the SQL and people at the search box found ---------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("対応形式はJSON、XML、CSVです。設定は「Router」画面で行う。", ["JSON", "XML", "CSV", "Router", "設定"]),
        ("The gateway—an old model—fails. Press the “Reset” button… then wait.", ["gateway", "model", "reset", "button"]),
        ("it’s end–to–end A→B «bonjour» OS：Windows。Mac 🚀launch", ["end", "bonjour", "windows", "mac", "launch"]),
        ("co\u00adop zero\u200bwidth", ["coop", "zero", "width"]),
        ("Привет, мир! مرحبا، عالم नमस्ते।", ["мир", "مرحبا", "नमस्ते"]),
        ("C# and C++, about 16,000円", ["C#", "C++", "16000", "16,000円"]),
    ],
)
def test_punctuation_of_every_script_stands_between_words(rag: RagDB, text: str, words: list[str]) -> None:
    rag.add(Document("a", text))
    rag.add(Document("b", "An unrelated page."))
    for word in words:
        assert [hit.uri for hit in rag.search(word, pipeline=LEXICAL)] == ["a"], word


def test_a_language_named_by_a_sign_is_told_from_its_sisters(rag: RagDB) -> None:
    for uri, text in {"c": "Written in C.", "cs": "Written in C#.", "cpp": "Written in C++."}.items():
        rag.add(Document(uri, text))
    assert rag.search("C#", pipeline=LEXICAL)[0].uri == "cs"
    assert rag.search("C++", pipeline=LEXICAL)[0].uri == "cpp"


def test_copies_of_one_text_leave_room_for_others_in_sql_and_python(rag: RagDB, query: Query) -> None:
    for n in range(80):
        rag.add(Document(f"d{n}", "Reset the router." if n < 60 else f"Reset the router number {n}."))
    hits = rag.search("reset router", pipeline=LEXICAL)
    assert len({hit.content for hit in hits}) == 10
    in_sql = query("select chunk_id from ragdb.search('reset router', 'help', 10, options => '{\"legs\": [\"lexical\"]}')")
    assert [(hit.chunk_id,) for hit in hits] == in_sql
    assert len(rag.search("reset router", pipeline=LEXICAL, k=10, offset=10).hits) == 10


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('{"candidates": 0}', "candidates is 0"),
        ('{"candidates": -1}', "candidates is -1"),
        ('{"candidates": 5000}', "candidates is 5000"),
        ('{"candidates": "x"}', "candidates is"),
        ('{"offset": 2147483647}', "offset"),
        ('{"offset": 1.5}', "offset is 1.5"),
        ('{"rrf_k": "x"}', "rrf_k"),
        ('{"exact_limit": -1}', "exact_limit is -1"),
        ('{"legs": ["bogus"]}', "bogus"),
        ('{"legs": []}', "legs"),
        ('{"weights": {"lexica": 1}}', "lexica"),
        ('{"wieghts": {"lexical": 1}}', "wieghts"),
        ('{"model_id": 99}', "99"),
        ("[]", "options is array"),
    ],
)
@pytest.mark.parametrize("function", ["search", "search_plan"])
def test_wrong_options_are_named(rag: RagDB, query: Query, function: str, options: str, named: str) -> None:
    rag.add(Document("a", "okapi"))
    with pytest.raises(psycopg.DatabaseError, match=named) as caught:
        query(f"select * from ragdb.{function}('okapi', 'help', options => %s::jsonb)", options)
    assert caught.value.sqlstate == ("RD003" if "model_id" in options else "RD004")


@pytest.mark.parametrize("candidates", ["0", "-1", "1200000000", "null"])
def test_a_leg_takes_one_to_a_thousand_candidates(rag: RagDB, query: Query, candidates: str) -> None:
    rag.add(Document("a", "okapi"))
    for leg in ("retrieve_lexical('okapi'", "retrieve_semantic(array[1,0,0,0,0,0,0,0]"):
        with pytest.raises(psycopg.DatabaseError, match="candidates is") as caught:
            query(f"select * from ragdb.{leg}, 'help', {candidates})")
        assert caught.value.sqlstate == "RD004"


def test_whole_numbers_with_a_point_are_whole_numbers(rag: RagDB) -> None:
    number = rag.add(Document("a", "okapi")).document_id
    for where in (
        {"document_id": float(number)},
        {"document_id": [float(number), 10**15]},
        {"document_id": {"gt": number - 0.5}},
    ):
        assert [hit.uri for hit in rag.search("okapi", where=where)] == ["a"]
    assert rag.search("okapi", where={"document_id": {"lt": 1e30}}).hits
    assert not rag.search("okapi", where={"document_id": {"gt": 1e30}}).hits


def test_a_filter_that_no_sampled_page_matches_starves_nothing(rag: RagDB, query: Query) -> None:
    """The share of a filter is guessed by a sample; one that the sample misses matched everything."""
    query("select ragdb.create_collection('wide', 1) from ragdb.register_model('none', 8)")
    query(
        "insert into ragdb.document (collection_id, uri, ready_revision, n_chunks, ingest_state) select 1, 'd' || n, 1, 1, 'ready' from generate_series(1, 50) n"
    )
    assert query("""select ragdb.matching_share(1, 'd.metadata @> ''{"tenant": 7}''', '[]')""") == [(0.0,)]
    assert query("select ragdb.matching_share(1, 'd.status = ''active''', '[]')") == [(1.0,)]


def test_nested_alternatives_end_somewhere(rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    where: dict[str, Any] = {"tenant": 7}
    for _ in range(30):
        where = {"any": [where]}
    with pytest.raises(BadFilter, match="20 levels"):
        rag.search("okapi", where=where)
    with pytest.raises(BadFilter, match="500"):
        rag.search("okapi", where={"any": [{"tenant": n} for n in range(600)]})


def test_one_term_in_thousands_of_synonyms_costs_little(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "A car on the road."))
    query("insert into ragdb.synonym (terms) select array['term' || g, 'mean' || g, 'car'] from generate_series(1, 2000) g")
    began = time.monotonic()
    assert rag.search("car", pipeline=LEXICAL)[0].uri == "a"
    assert time.monotonic() - began < 5
    query("update ragdb.synonym set weight = 1e-60")
    assert rag.search("car", pipeline=LEXICAL)[0].uri == "a"


def test_a_chunk_written_beside_a_reweigh_has_the_new_weights(ragdb_url: str, rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "okapi and zebra"))
    with psycopg.connect(ragdb_url) as writer:
        writer.execute(
            'select * from ragdb.put_document(\'help\', \'{"uri": "b", "content": "okapi", "chunking": "x", "chunks": [{"ordinal": 0, "content": "okapi", "context": "", "start": 0, "end": 5, "label": "b#top#00"}]}\')'
        )
        thread = threading.Thread(target=lambda: query("select ragdb.reweigh('help', 5)"))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()  # waits for the writer
        writer.commit()
        thread.join(20)
    assert query(
        "select bool_and(k.lexical_weights = ragdb.lexical_weights(k.lexemes, c.k1, c.b, c.pivot_length)), count(*) "
        "from ragdb.chunk k join ragdb.document d using (document_id) join ragdb.collection c using (collection_id)"
    ) == [(True, 2)]


@pytest.mark.parametrize("wrong", ['{"k1": "NaN"}', '{"pivot_length": 1e-300}', '{"pivot_length": "NaN"}'])
def test_constants_of_bm25_are_numbers_that_weights_can_be_made_of(rag: RagDB, query: Query, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        query("select ragdb.create_collection('wrong', ragdb.register_model('none', 8), %s::jsonb)", wrong)


def test_a_year_before_christ_is_no_filter(rag: RagDB) -> None:
    rag.add(Document("a", "okapi"))
    with pytest.raises(BadFilter, match="BC"):
        rag.search("okapi", where={"updated_at": {"gte": "0044-03-15 BC"}})
    assert rag.search("okapi", where={"updated_at": {"exists": False}}).hits


@pytest.mark.parametrize("lists", ['{"a": [1.5]}', '{"a": [1e30]}'])
def test_ranks_are_of_whole_numbers(query: Query, lists: str) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        query("select * from ragdb.rrf_fuse(%s::jsonb)", lists)
    assert caught.value.sqlstate == "RD004"


def test_unknown_words_are_all_looked_for_however_stale_the_statistics(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "okapi"))
    rag.add(Document("b", "zebra unique"))
    words = " ".join(f"aa{n}" for n in range(40))
    query("update ragdb.collection set exact_limit = 0")
    query("delete from ragdb.lexeme")
    assert [hit.uri for hit in rag.search(f"okapix {words} zebra", pipeline=LEXICAL)] == ["b"]
