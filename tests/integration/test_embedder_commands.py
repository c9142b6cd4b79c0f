"""`ragdb embedder add, list, fill, compare, activate, drop`: the commands say what they did and what comes next."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from ragdb import Document, RagDB
from ragdb.db import schema
from ragdb.db.connect import libpq_url
from ragdb.errors import AccessDenied
from ragdb.ingest import activate, vector_sets
from ragdb.testing import FakeEmbedder
from tests.integration.test_embedder_index import Cli, cli

__all__ = ["cli"]

Query = Callable[..., list[tuple[Any, ...]]]
OLD = FakeEmbedder().name
NEW = FakeEmbedder(16).name


@pytest.fixture
def help_pages(ragdb_url: str) -> Iterator[RagDB]:
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        for n in range(4):
            rag.add(Document(f"d{n}", f"Page {n} about router{n}."))
        rag.search("router2")
        yield rag


@pytest.mark.usefixtures("help_pages")
def test_the_whole_way_there_and_back(cli: Cli, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    added = cli("embedder", "add", NEW, "-c", "help")
    assert added.code == 0
    assert "a vector set of help, behind by 4 chunks" in added.out
    assert "embedder fill" in added.err
    listed = cli("embedder", "list", "-c", "help")
    assert "help: active" in listed.out
    assert "help: behind by 4 chunks" in listed.out
    refused = cli("embedder", "activate", NEW, "-c", "help")
    assert refused.code == 1
    assert "4 chunks have no vector of it yet" in refused.err
    refused = cli("embedder", "compare", OLD, NEW, "-c", "help")
    assert "embedder fill" in refused.err
    monkeypatch.setenv("RAGDB_EMBEDDER", NEW)
    assert "retrieve semantic: behind, the vector set of" in cli("ask", "router2", "-c", "help").err
    monkeypatch.setenv("RAGDB_EMBEDDER", OLD)
    filled = cli("embedder", "fill", NEW, "-c", "help")
    assert "4 vectors made, the set is complete" in filled.out
    assert "built embedding_hnsw_2" in cli("embedder", "index", NEW).out

    compared = cli("embedder", "compare", OLD, NEW, "-c", "help", "-k", "3")
    assert compared.code == 0, compared.err
    assert "1 question, the first 3 of each: overlap" in compared.out
    (tmp_path / "asked.txt").write_text("router1\n\nrouter3\n", encoding="utf-8")
    by_file = json.loads(cli("embedder", "compare", OLD, NEW, "-c", "help", "--questions", "asked.txt", "--json").out)
    assert {q["question"] for q in by_file["questions"]} == {"router1", "router3"}
    (tmp_path / "judged.tsv").write_text("router1\td1\t1\n", encoding="utf-8")
    assert "nDCG@10:" in cli("embedder", "compare", OLD, NEW, "-c", "help", "--qrels", "judged.tsv").out
    (tmp_path / "wrong.tsv").write_text("router1 d1 1\n", encoding="utf-8")
    wrong = cli("embedder", "compare", OLD, NEW, "-c", "help", "--qrels", "wrong.tsv")
    assert wrong.code == 2
    assert "line 1" in wrong.err

    active = cli("embedder", "activate", NEW, "-c", "help")
    assert f"{NEW} is active, {OLD} was" in active.out
    assert query("select active_model_id from ragdb.collection") == [(2,)]
    undone = json.loads(cli("embedder", "activate", OLD, "-c", "help", "--json").out)
    assert (undone["was"], undone["active"], undone["missing"]) == (NEW, OLD, 0)
    assert cli("embedder", "drop", OLD, "-c", "help").code == 1
    dropped = cli("embedder", "drop", NEW, "-c", "help")
    assert f"removed 4 vectors of {NEW} and its index and the model, which no collection uses" in dropped.out
    assert query("select count(*) from ragdb.embedding_model") == [(1,)]


def test_settings_that_were_fitted_to_the_old_set_are_said(cli: Cli, help_pages: RagDB) -> None:
    help_pages.context.database.call(
        "set_fusion", collection="help", fusion={"rrf_k": 30, "source": {"model": OLD, "set": "golden"}}
    )
    cli("embedder", "add", NEW, "-c", "help")
    forced = cli("embedder", "activate", NEW, "-c", "help", "--force")
    assert f"settings of fuse of its own (rrf_k); where they were fitted to {OLD}, fit them again: ragdb eval tune" in forced.err
    assert "fitted" not in cli("embedder", "activate", NEW, "-c", "help", "--force").err  # it was active already


@pytest.mark.usefixtures("help_pages")
def test_an_index_that_the_old_set_has_and_the_new_one_lacks_is_said(cli: Cli) -> None:
    cli("embedder", "index", OLD)
    cli("embedder", "add", NEW, "-c", "help")
    forced = cli("embedder", "activate", NEW, "-c", "help", "--force")
    assert forced.code == 0
    assert "4 chunks have no vector of it yet" in forced.err
    assert "has no index yet" in forced.err


def test_names_that_are_not_there_are_said_with_those_that_are(cli: Cli, help_pages: RagDB) -> None:
    for verb in (["activate", "nothing"], ["fill", "nothing"], ["compare", OLD, "nothing"]):
        ran = cli("embedder", *verb, "-c", "help")
        assert ran.code == 1
        assert OLD in ran.err, ran.err
    assert cli("embedder", "add", "nothing:at-all", "-c", "help").code == 1
    assert [row["model"] for row in vector_sets.listed(help_pages)] == [OLD]


def test_writers_fill_and_the_owner_or_who_is_told_activates(
    ragdb_empty_database: Callable[..., str],
) -> None:
    url = ragdb_empty_database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
    schema.upgrade(url)
    roles = (Path(schema.__file__).parents[2] / "sql" / "roles.sql").read_text(encoding="utf-8")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(roles.replace("ragdb_", "vs_").replace("vs_nothing", "ragdb_nothing").encode())
        for role in ("vs_app", "vs_deployer"):
            conn.execute(f"do $$ begin if to_regrole('{role}') is null then create role {role} login; end if; end $$".encode())
            conn.execute(f"grant vs_writer to {role}".encode())
        conn.execute("grant execute on function ragdb.activate_vector_set(text, text, boolean) to vs_deployer")
    app, deployer = (libpq_url(make_url(url).set(username=role)) for role in ("vs_app", "vs_deployer"))
    with RagDB(app, collection="help", embedder=FakeEmbedder()) as writer, RagDB(url, collection="help") as owner:
        writer.add(Document("a", "Reset the router."))
        with pytest.raises(AccessDenied):
            vector_sets.add(writer, NEW)
        vector_sets.add(owner, NEW)
        assert vector_sets.fill_some(writer.context) == 1
        assert [row["missing"] for row in vector_sets.listed(writer)] == [0, 0]
        with pytest.raises(AccessDenied):
            activate(writer, NEW)
        with RagDB(deployer, collection="help") as told:
            assert activate(told, NEW)["active"] == NEW
        with pytest.raises(AccessDenied):
            vector_sets.drop(writer, OLD)
        assert writer.search("router")[0].uri == "a"
