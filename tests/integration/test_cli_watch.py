"""`ragdb watch` and `ragdb unwatch`, as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ragdb.cli.main import app

Query = Callable[..., list[tuple[Any, ...]]]
FAKE = "ragdb.testing.fakes:FakeEmbedder"


@pytest.fixture
def run(ragdb_url: str, query: Query, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("RAGDB_DATABASE_URL", ragdb_url)
    query("create schema app")
    query("create table app.articles (id int primary key, body text, title text, tenant_id int, published boolean)")
    query("insert into app.articles select i, 'Text of ' || i, 'T', i % 3, i % 2 = 0 from generate_series(1, 10) i")

    def ragdb(*words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == code, (done.output, done.stderr, done.exception)
        return done

    return ragdb


WATCH = (
    "watch", "app.articles", "--id", "id", "--content", "body", "--title", "title", "--metadata", "tenant=tenant_id", "--metadata",
    "published", "--where", "published=true", "-c", "help", "--embedder", FAKE, "--batch", "2",
)  # fmt: skip


def test_a_table_is_watched_listed_compared_again_and_left(run: Callable[..., Result], query: Query) -> None:
    assert run(*WATCH).stdout.startswith("app.articles: 10 rows, 5 documents put, 0 deleted; they are embedded by: ")
    assert query("select uri, metadata from ragdb.document order by document_id limit 1") == [
        ("articles/2", {"tenant": 2, "published": True})
    ]
    lines = run("watch", "--list").stdout.splitlines()
    assert lines[1].split() == ["1", "app.articles", "help", "articles/", "5", "0", "watched"]
    query("alter table app.articles disable trigger user")
    query("update app.articles set published = true")
    [watch] = json.loads(run("watch", "--list", "--json").stdout)["watches"]
    assert (watch["state"], watch["rows_without_document"]) == ("triggers are disabled", 5)
    query("alter table app.articles enable trigger user")
    assert json.loads(run("watch", "app.articles", "--again", "--json").stdout) == {"rows": 10, "put": 5, "deleted": 0}
    run("worker", "--once", "-c", "help")
    assert query("select count(*) from ragdb.document where ingest_state = 'ready'") == [(10,)]
    assert "its documents stay" in run("unwatch", "app.articles").stdout
    assert json.loads(run(*WATCH, "--no-backfill", "--json").stdout)["uri_prefix"] == "articles/"
    assert json.loads(run("unwatch", "app.articles", "--documents", "--json").stdout) == {"watches": 1, "documents": 10}
    assert run("watch", "--list").stdout == ""


def test_a_watch_of_a_table_that_is_gone_ends_by_its_number(run: Callable[..., Result], query: Query) -> None:
    run(*WATCH)
    query("drop table app.articles")
    assert "the table was dropped" in run("watch", "--list").stdout
    assert run("unwatch", "1", "--documents").stdout == "1 is not followed any more; 5 documents deleted\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("watch",), "name a table"),
        (("watch", "app.articles"), "needs --id COLUMN"),
        (("watch", "app.articles", "--id", "id", "--content", "body", "--where", "published"), "write COLUMN=VALUE"),
        (("watch", "app.articles", "--id", "id", "--content", "body", "--metadata", "x="), "write KEY=COLUMN"),
        (("watch", "app.articles", "--id", "id", "--content", "body", "--options", "[]"), "write an object"),
    ],
)
def test_a_wrong_call_says_what_is_right(run: Callable[..., Result], words: tuple[str, ...], message: str) -> None:
    assert message in " ".join(run(*words, code=2).stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("watch", "articles", "--id", "id", "--content", "body", "--embedder", FAKE), "name the table with its schema"),
        (("watch", "app.articles", "--id", "id", "--content", "text", "--embedder", FAKE), 'no column "text"'),
        (("watch", "app.articles", "--again"), "is not watched"),
        (("unwatch", "app.articles"), "is not watched"),
        (("unwatch", "7"), "no watch 7"),
    ],
)
def test_what_the_database_refuses_is_one_clear_error(run: Callable[..., Result], words: tuple[str, ...], message: str) -> None:
    assert message in str(run(*words, code=1).exception)
