"""Live filters: the owner's queries over the application's tables, joined when a search runs, in both legs and in listings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from ragdb import Document, Pipeline, RagDB
from ragdb.errors import BadFilter, DatabaseError

Query = Callable[..., list[tuple[Any, ...]]]
LEXICAL = Pipeline(legs=("lexical",), window=0)
SEMANTIC = Pipeline(legs=("semantic",), window=0)
MY_ORDERS = "select document_id from app.order_docs where customer_id = $1"


@pytest.fixture
def shop(rag: RagDB, query: Query) -> RagDB:
    """Documents a, b, c; customer 42 has ordered a and b, customer 7 c."""
    ids = {uri: rag.add(Document(uri, f"A page about seals, {uri}.")).document_id for uri in "abc"}
    query("create schema app")
    query("create table app.order_docs (document_id bigint, customer_id bigint, code char(3), sold_at timestamptz, note text)")
    for uri, customer in (("a", 42), ("b", 42), ("c", 7)):
        query(
            "insert into app.order_docs values (%s, %s, %s, '2026-01-31T00:30Z', %s)", ids[uri], customer, f"C{uri}", "costs $1"
        )
    register(query, "my_orders", MY_ORDERS)
    return rag


def register(query: Query, name: str, definition: str) -> None:
    query("select ragdb.register_filter(%s, %s)", name, definition)


def uris(rag: RagDB, **filters: Any) -> str:
    where = {"filter": filters}
    lexical = sorted(h.uri for h in rag.search("seals", where=where, pipeline=LEXICAL))
    semantic = sorted(h.uri for h in rag.search("seals", where=where, pipeline=SEMANTIC))
    listed = [row["uri"] for row in rag.context.database.call("list_documents", collection="help", where=where)]
    assert lexical == semantic == listed, "both legs and the listing hold to the filter"
    return "".join(lexical)


def test_a_search_sees_the_applications_rows_as_they_are_now(shop: RagDB, query: Query) -> None:
    assert uris(shop, my_orders=[42]) == "ab"
    query("insert into app.order_docs select document_id, 42 from ragdb.document where uri = 'c'")
    assert uris(shop, my_orders=[42]) == "abc"
    query("delete from app.order_docs where customer_id = 42")
    assert uris(shop, my_orders=[42]) == ""


def test_several_filters_hold_together_and_any_takes_them_as_alternatives(shop: RagDB, query: Query) -> None:
    register(query, "by_code", "select document_id from app.order_docs where code = $1")
    assert uris(shop, my_orders=[42], by_code=["Ca"]) == "a"
    assert uris(shop, my_orders=[42], by_code=["Cc"]) == ""
    where = {"any": [{"filter": {"my_orders": [7]}}, {"uri": "a"}, {"filter": {"by_code": ["Cx"]}}]}
    assert sorted(h.uri for h in shop.search("seals", where=where)) == ["a", "c"]
    assert [h.uri for h in shop.search("seals", where={"uri": "b", "filter": {"my_orders": [42]}})] == ["b"]


def test_an_index_gives_what_comparing_every_chunk_gives(shop: RagDB, query: Query) -> None:
    for path, limit in (("exact", 10000), ("gin", 0)):
        rows = query(
            "select l.path, array(select d.uri from ragdb.chunk c join ragdb.document d using (document_id) where c.chunk_id = any (l.chunk_ids) order by 1) "
            "from ragdb.lexical_leg('seals', 'help', 50, %s, %s) l",
            Jsonb({"filter": {"my_orders": [42]}}),
            Jsonb({"exact_limit": limit}),
        )
        assert rows == [(path, ["a", "b"])]


def test_a_value_takes_the_type_of_its_parameter(shop: RagDB, query: Query) -> None:
    register(query, "some", "select document_id from app.order_docs where customer_id = any ($1)")
    assert uris(shop, some=[[42, 7]]) == "abc"
    assert uris(shop, some=[[42, None]]) == "ab"
    assert uris(shop, some=[[]]) == ""
    assert uris(shop, some=[list(range(10_000))]) == "abc"
    assert uris(shop, my_orders=[None]) == ""
    assert uris(shop, my_orders=["42"]) == "ab"
    register(query, "since", "select document_id from app.order_docs where sold_at >= $1 and code = $2")
    # without an offset it is UTC, whatever the session's zone
    assert uris(shop, since=["2026-01-31 00:30", "Ca"]) == "a"
    assert uris(shop, since=["2026-01-31T00:31:00", "Ca"]) == ""
    register(query, "told", "select document_id from app.order_docs where jsonb_build_object('c', customer_id) @> $1")
    assert uris(shop, told=[{"c": 42}]) == "ab"


def test_markers_in_quotes_are_text(shop: RagDB, query: Query) -> None:
    register(
        query,
        "quoted",
        "select document_id from app.order_docs where note = 'costs $1' and note <> ';--''$2' and \"customer_id\" = $1;",
    )
    assert uris(shop, quoted=[42]) == "ab"
    register(query, "none", "values (0), (-1)")
    assert uris(shop, none=[]) == ""


def test_no_text_of_the_caller_becomes_sql(shop: RagDB, query: Query) -> None:
    register(query, "noted", "select document_id from app.order_docs where note = $1")
    evil = "x') or true; drop table app.order_docs; --"
    assert uris(shop, noted=[evil]) == ""
    condition = query("select condition from ragdb.where_clause(%s)", Jsonb({"filter": {"noted": [evil]}}))[0][0]
    assert "drop" not in condition
    assert query("select count(*) from app.order_docs") == [(3,)]


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"my_orders": ["x"]}, r'"my_orders".*"x".*bigint'),
        ({"my_orders": [7.5]}, r'"my_orders".*7.5'),
        ({"my_orders": [1e30]}, r'"my_orders".*out of range'),
        ({"my_orders": [True]}, r'"my_orders".*true'),
        ({"my_orders": [[42]]}, r'"my_orders".*array'),
        ({"my_orders": [{"x": 1}]}, r'"my_orders".*object'),
        ({"my_orders": []}, r'"my_orders" takes 1 value.*not 0'),
        ({"my_orders": [42, 7]}, r'"my_orders" takes 1 value.*not 2'),
        ({"my_orders": list(range(10_000))}, r'"my_orders" takes 1 value.*not 10000'),
        ({"my_orders": 42}, r'"my_orders" takes a list'),
        ({"my_orders": {"in": [42]}}, r'"my_orders" takes a list'),
        ({"nobody's": [1]}, "nobody's"),
        ({'"; drop table app.order_docs; --': [1]}, "drop table"),
        ({"some": [7]}, r'"some".*number'),
        ({"some": [[[1], [2]]]}, r'"some".*array'),
        ({}, "names no filter"),
        ([], "names no filter"),
        ("my_orders", "names no filter"),
    ],
)
def test_a_wrong_filter_is_an_error_that_names_it(shop: RagDB, query: Query, filters: Any, named: str) -> None:
    register(query, "some", "select document_id from app.order_docs where customer_id = any ($1)")
    with pytest.raises(BadFilter, match=f"(?s){named}"):
        shop.search("seals", where={"filter": filters})
    assert query("select count(*) from app.order_docs") == [(3,)]


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("select 1); drop table app.order_docs; --", "comment"),
        ("select 1); drop table app.order_docs", "more than one statement"),
        ("select 1; select 2", "more than one statement"),
        ("select 1) f(document_id), (select 2", "syntax error"),
        ("select 1 -- $1", "comment"),
        ("select /* $1 */ 1", "comment"),
        ("select 1 where 'a' = $$ $1 $$", "dollar sign"),
        ("select 1 where 'a' = $x$ $1 $x$", "dollar sign"),
        ("select a$1 from (values (1)) v(a$1)", "dollar sign"),
        (r"select 1 where E'\'' = $1", "backslash"),
        ("select 1 where 'open", "does not end"),
        ('select 1 as "open', "does not end"),
        ("", "empty"),
        (";", "empty"),
        ("nonsense", "syntax error"),
        ("delete from app.order_docs returning document_id", "syntax error"),
        ("with x as (delete from app.order_docs returning document_id) select document_id from x", "data-modifying"),
        ("select document_id into app.copy from app.order_docs", "INTO"),
        ("select document_id from app.order_docs for update", "locks"),
        ("table mine", "temporary"),
        ("select document_id from order_docs", "does not exist"),
        ("select document_id from app.nothing", "does not exist"),
        ("select document_id, customer_id from app.order_docs", "2 columns"),
        ("select from app.order_docs", "columns"),
        ("select note from app.order_docs", "text"),
        ("select document_id::numeric from app.order_docs", "numeric"),
        ("select document_id from app.order_docs where customer_id = $2", "parameter"),
        ("select d.document_id from app.order_docs where d.uri = $1", "missing FROM-clause"),
    ],
)
def test_a_definition_that_is_no_plain_query_of_ids_is_refused(shop: RagDB, query: Query, definition: str, reason: str) -> None:
    query("create temp table mine (document_id bigint)")
    with pytest.raises(psycopg.DatabaseError, match=f'(?s)"evil".*{reason}') as caught:
        register(query, "evil", definition)
    assert caught.value.sqlstate == "RD004"
    assert query("select name from ragdb.live_filter") == [("my_orders",)]
    assert query("select count(*) from app.order_docs") == [(3,)]
    assert query("select count(*) from pg_prepared_statements where name like 'ragdb%%'") == [(0,)]


def test_registering_again_replaces_and_dropping_forgets(shop: RagDB, query: Query) -> None:
    query("update ragdb.live_filter set comment = 'what a customer has bought'")
    register(query, "my_orders", "select document_id from app.order_docs where customer_id <> $1")
    assert uris(shop, my_orders=[42]) == "c"
    assert query("select parameter_types, comment from ragdb.live_filter") == [(["bigint"], "what a customer has bought")]
    query("select ragdb.drop_filter('my_orders')")
    with pytest.raises(BadFilter, match="my_orders"):
        uris(shop, my_orders=[42])
    with pytest.raises(psycopg.DatabaseError, match="my_orders"):
        query("select ragdb.drop_filter('my_orders')")


def test_a_column_that_has_gone_is_an_error_and_never_a_column_of_the_document(shop: RagDB, query: Query) -> None:
    # Inside the search's statement document_id would then mean the searched document's, and let everything through.
    query("alter table app.order_docs rename document_id to doc")
    with pytest.raises(DatabaseError, match=r'"my_orders" no longer works.*document_id'):
        uris(shop, my_orders=[42])
    query("drop table app.order_docs")
    with pytest.raises(DatabaseError, match=r'"my_orders" no longer works.*order_docs'):
        uris(shop, my_orders=[42])


@pytest.fixture
def stranger(ragdb_url: str, query: Query) -> Iterator[psycopg.Connection[Any]]:
    """A role that may execute everything of ragdb, and owns nothing."""
    role = sql.Identifier(f"stranger_{uuid.uuid4().hex[:8]}")
    query(
        sql.SQL(
            "create role {0}; grant usage on schema ragdb to {0}; grant execute on all functions in schema ragdb to {0}"
        ).format(role)
    )  # type: ignore[arg-type]
    with psycopg.connect(ragdb_url, autocommit=True) as conn:
        conn.execute(sql.SQL("set role {}").format(role))
        yield conn
    query(sql.SQL("drop owned by {0}; drop role {0}").format(role))  # type: ignore[arg-type]


def test_only_the_owner_registers_and_others_search_without_rights_on_the_table(
    shop: RagDB, stranger: psycopg.Connection[Any]
) -> None:
    for call in ("select ragdb.register_filter('evil', 'select 1')", "select ragdb.drop_filter('my_orders')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="owner"):
            stranger.execute(call)  # type: ignore[arg-type]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("insert into ragdb.live_filter values ('evil', 'select 1', '{}')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select from app.order_docs")
    rows = stranger.execute(
        """select uri from ragdb.search('seals', 'help', "where" => '{"filter": {"my_orders": [42]}}') order by uri"""
    ).fetchall()
    assert rows == [("a",), ("b",)]
