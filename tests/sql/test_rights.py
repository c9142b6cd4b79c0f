"""Who reads what: every public function, table and view is walked as people with different rights, and no text, name or
number of a document that they may not read comes out: not in a row, a count, a message or a notice.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy import make_url

from ragdb import Document, RagDB
from ragdb.db import schema
from ragdb.db.connect import libpq_url
from ragdb.testing import FakeEmbedder

pytestmark = pytest.mark.postgres(16, 18)

Query = Callable[..., list[tuple[Any, ...]]]

# Every document holds its own marker in each of its columns, and the word "router".
DOCUMENTS = {
    "markerseven": ("help", {"tenant": 7}),
    "markertext": ("help", {"tenant": "7"}),
    "markereight": ("help", {"tenant": 8}),
    "markerboss": ("boss", {"tenant": 7}),
    "markeropen": ("open", {}),
}
MARKERS = {*DOCUMENTS, "markerrun"}
NUMBERS = FakeEmbedder().embed_query("router")


@dataclass(frozen=True)
class Person:
    """A login, the role or settings it works with, and the markers it may see."""

    login: str
    sees: frozenset[str] = frozenset()
    first: tuple[str, ...] = field(default=())


PEOPLE = {
    "a stranger": Person("stranger"),
    "a reader of nothing": Person("nothing"),
    "a reader of one collection": Person("opener", frozenset({"markeropen"})),
    "a reader under a where": Person("seven", frozenset({"markerseven"})),
    "a reader with two grants": Person("twice", frozenset({"markerseven", "markereight"})),
    "an application that sets its tenant": Person("shop", frozenset({"markerseven", "markertext"}), ("set app.tenant = '7'",)),
    "an application that sets another tenant": Person("shop", frozenset({"markereight"}), ("set app.tenant = '8'",)),
    "an application that sets none": Person("shop"),
    "an application that sets a wrong one": Person("shop", frozenset(), ("set app.tenant = $$' or true --$$",)),
    "a reader by a look-up of roles": Person("looked", frozenset({"markerboss"})),
    "a member of a role": Person("member", frozenset({"markerseven"})),
    "a member that does not inherit": Person("web"),
    "the same after SET ROLE": Person("web", frozenset({"markerseven"}), ("set role seven",)),
    "a reader whose grant is broken": Person("broken"),
}
READERS = sorted({p.login for p in PEOPLE.values()} - {"stranger", "web"})


@dataclass(frozen=True)
class World:
    url: str
    chunk_ids: list[int]
    document_ids: list[int]
    run_ids: list[int]
    model: tuple[int, str]


@pytest.fixture
def world(ragdb_url: str, query: Query) -> World:
    for collection in ("help", "boss", "open"):
        with RagDB(ragdb_url, collection=collection, embedder=FakeEmbedder()) as rag:
            for marker, (where, metadata) in DOCUMENTS.items():
                if where == collection:
                    rag.add(
                        Document(
                            marker,
                            f"# {marker}\n\nThe router of {marker} is {marker}.\n\n## More {marker}\n\nAnother {marker} router.",
                            title=marker,
                            metadata={**metadata, "note": marker},
                            owner=marker,
                            version=marker,
                            language=marker,
                        )
                    )
            rag.ask("what about the markerrun router")
    roles(query)
    return World(
        ragdb_url,
        [i for (i,) in query("select chunk_id from ragdb.chunk order by 1")],
        [i for (i,) in query("select document_id from ragdb.document order by 1")],
        [i for (i,) in query("select run_id from ragdb.run order by 1")],
        query("select model_id, name from ragdb.embedding_model")[0],
    )


def roles(query: Query) -> None:
    query(schema.roles_script())
    for login in {*READERS, "stranger", "web", "auditor", "writer"}:
        query(f"do $$ begin if to_regrole('{login}') is null then create role {login} login; end if; end $$")
    query(f"grant ragdb_reader to {', '.join(READERS)}, web; grant ragdb_auditor to auditor; grant ragdb_writer to writer")
    query("grant seven to member; grant seven to web with inherit false")
    # what readers do not have by themselves, so that row level security is looked at too
    tables = f"grant select on ragdb.document, ragdb.run, ragdb.citation to {', '.join(READERS)}, web"
    query(f"{tables}; grant execute on function ragdb.reads_run to {', '.join(READERS)}, web")
    query("create schema app; create table app.doc_role (document_id bigint, role text)")
    query("insert into app.doc_role select document_id, 'looked' from ragdb.document where uri in ('markerboss')")
    query("select ragdb.register_filter('docs_of_role', 'select document_id from app.doc_role where role = ragdb.caller()')")
    for collection, role, where in (
        ("open", "opener", {}),
        ("help", "seven", {"tenant": 7}),
        ("help", "twice", {"tenant": 7}),
        ("help", "twice", {"tenant": 8}),
        ("help", "shop", {"tenant": {"setting": "app.tenant"}}),
        ("boss", "looked", {"filter": {"docs_of_role": []}}),
    ):
        query("select ragdb.grant_collection(%s, %s, %s)", collection, role, json.dumps(where))
    query(
        'insert into ragdb.collection_grant (collection_id, grantee, "where") '
        "select collection_id, 'broken', '{\"tenant\": {\"markereight\": 1}}' from ragdb.collection"
    )


class Seen:
    """Everything that came out of a person's statements."""

    def __init__(self, url: str, person: Person) -> None:
        self.conn = psycopg.connect(libpq_url(make_url(url).set(username=person.login)), autocommit=True, row_factory=dict_row)
        self.text: list[str] = []
        self.errors: list[str] = []
        self.conn.add_notice_handler(
            lambda d: self.text.append(f"notice {d.message_primary} {d.message_detail} {d.message_hint}")
        )
        for statement in person.first:
            self.conn.execute(statement.encode())

    def run(self, statement: str | sql.Composed, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        try:
            rows = self.conn.execute(statement, values).fetchall()  # type: ignore[arg-type]
        except psycopg.Error as error:
            d = error.diag
            self.errors.append(d.sqlstate or "")
            self.text.append(
                f"error {d.message_primary} {d.message_detail} {d.message_hint} {d.context if d.sqlstate != 'XX000' else ''}"
            )
            return []
        self.text += [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
        return rows

    def markers(self) -> set[str]:
        return {marker for marker in MARKERS if any(marker in text for text in self.text)}


@pytest.fixture
def become(world: World) -> Iterator[Callable[[Person], Seen]]:
    made: list[Seen] = []

    def become(person: Person) -> Seen:
        made.append(Seen(world.url, person))
        return made[-1]

    yield become
    for seen in made:
        seen.conn.close()


def arguments(world: World) -> dict[str, list[Any]]:
    """Values to try for each parameter, by its name; the first of each where all combinations would be too many."""
    vectors = [NUMBERS]
    forged = {
        "collection": "help",
        "verb": "ask",
        "question": "q",
        "pipeline": {},
        "k": 1,
        "ms": 1,
        "document_ids": world.document_ids,
        "stages": [
            {"step": 1, "stage": "fuse", "name": "", "chunk_ids": world.chunk_ids, "scores": [1] * len(world.chunk_ids), "ms": 1}
        ],
        "citations": [
            {
                "number": n,
                "chunk_id": 1,
                "document_id": i,
                "label": "l",
                "uri": "u",
                "heading_path": [],
                "start": 0,
                "end": 1,
                "quote": "q",
            }
            for n, i in enumerate(world.document_ids)
        ],
    }
    anything = {"lexical": world.chunk_ids, "semantic": world.chunk_ids}
    return {
        "question": ["router", "router more another"],
        "collection": ["help", "boss", "open", "none"],
        "k": [5],
        "candidates": [20],
        "where": [
            "{}",
            '{"status": "any"}',
            '{"any": [{"tenant": 8}, {"tenant": 7}, {}]}',
            '{"filter": {"docs_of_role": []}}',
            '{"x": {"y": 1}}',
        ],
        "query_vector": vectors,
        "numbers": vectors,
        "options": ["{}", json.dumps({"vector": NUMBERS, "exact_limit": 0})],
        "lists": [json.dumps(anything)],
        "weights": ["{}"],
        "chunk_ids": [world.chunk_ids],
        "window": [5],
        "document_ids": [world.document_ids],
        "starts": [[0] * len(world.document_ids)],
        "ends": [[500] * len(world.document_ids)],
        "uri": list(DOCUMENTS),
        "how_many": [100],
        "after_uri": [""],
        "before": [None],
        "key": ["reword of a question"],
        "lifetime": ["7 days"],
        "queries": ['{"queries": [{"text": "another question", "legs": null}]}'],
        "run_id": list(range(1, 40)),  # those of the walk too
        "top": [100],
        "model_id": [world.model[0]],
        "model": [world.model[1]],
        "run": [
            json.dumps(forged),
            *(json.dumps({**forged, "collection": c, "citations": []}) for c in ("help", "boss", "open")),
        ],
        "rank": [1],
        "weight": [1.0],
        "collection_id": [1, 2, 3],
        "caller": ["seven"],
        "limits_hash": [None],
        # some of everybody's, by id and by label
        "chunk": [*map(str, world.chunk_ids[:: max(1, len(world.chunk_ids) // 4)]), "seven#page#00"],
        "conversation": ["chat"],
        "rating": [1],
        "comment": ["good"],
        "who": [None],
    }


def walk(seen: Seen, world: World, works: bool) -> None:
    """Calls every function that the person may execute in every way, and reads every table and view."""
    values = arguments(world)
    functions = seen.run(
        "select p.proname as name, coalesce(p.proargnames[1 : p.pronargs], '{}') as parameters, "
        "array(select format_type(t, null) from unnest(p.proargtypes::oid[]) with ordinality as u(t, n) order by n) as types "
        "from pg_proc p where p.pronamespace = (select oid from pg_namespace where nspname = 'ragdb') "
        "and has_function_privilege(p.oid, 'execute') and p.prorettype <> 'trigger'::regtype order by p.proname <> 'record_run', 1"
    )
    seen.text.clear()
    for function in functions:
        assert set(function["parameters"]) <= set(values), f"say in arguments() how to call {function['name']}"
        call = sql.SQL("select * from ragdb.{}({})").format(
            sql.Identifier(function["name"]),
            sql.SQL(", ").join(
                sql.SQL("{} => {}::").format(sql.Identifier(name), sql.Placeholder(name)) + sql.SQL(kind)
                for name, kind in zip(function["parameters"], function["types"], strict=True)
            ),
        )
        errors = len(seen.errors)
        calls = 0
        for some in itertools.product(*(values[name] for name in function["parameters"])):
            seen.run(call, dict(zip(function["parameters"], some, strict=True)))
            calls += 1
        assert {state[:2] for state in seen.errors[errors:]} <= {"RD"}, seen.text[-1]
        assert not works or len(seen.errors) - errors < calls, f"no call of {function['name']} came through: {seen.text[-1]}"
    for relation in seen.run(
        "select relname as name from pg_class where relkind in ('r', 'v', 'm', 'S') "
        "and relnamespace = (select oid from pg_namespace where nspname = 'ragdb')"
    ):
        seen.run(sql.SQL("select * from ragdb.{}").format(sql.Identifier(relation["name"])))


@pytest.mark.parametrize("who", PEOPLE)
def test_nothing_comes_out_that_a_person_may_not_read(world: World, become: Callable[[Person], Seen], who: str) -> None:
    person = PEOPLE[who]
    seen = become(person)
    walk(seen, world, works=bool(person.sees))
    assert seen.markers() == set(person.sees)
    # a second time: now there are runs and kept vectors of the first
    walk(seen, world, works=bool(person.sees))
    assert seen.markers() == set(person.sees)


@pytest.mark.parametrize("who", PEOPLE)
def test_counts_are_of_what_a_person_reads(world: World, become: Callable[[Person], Seen], who: str) -> None:
    person = PEOPLE[who]
    seen = become(person)
    listed = seen.run("select * from ragdb.list_collections()")
    expected = {DOCUMENTS[marker][0] for marker in person.sees}
    assert {row["collection"] for row in listed if row["documents"]} == expected
    assert sum(row["documents"] for row in listed) == len(person.sees)
    for collection in ("help", "boss", "open"):
        of_it = sum(DOCUMENTS[marker][0] == collection for marker in person.sees)
        for row in seen.run("select * from ragdb.collection_counts(%(c)s)", {"c": collection}):
            assert row["n_documents"] == of_it
        for row in seen.run(
            'select * from ragdb.lexical_leg(\'router\', %(c)s, "where" => \'{"status": "any"}\')', {"c": collection}
        ):
            assert (row["matching"] > 0) == (of_it > 0)
            assert (row["chunk_ids"] != []) == (of_it > 0)
    assert len(seen.run("select uri from ragdb.document")) == len(person.sees)


def test_what_does_not_exist_and_what_may_not_be_read_give_the_same_error(world: World, become: Callable[[Person], Seen]) -> None:
    seen = become(PEOPLE["a reader of one collection"])
    for call in ("search('router', '%s')", "list_documents('%s')", "get_document('%s', 'x')", "fuse('{}', 'router', '%s')"):
        seen.text.clear()
        seen.run(f"select * from ragdb.{call % 'boss'}")
        seen.run(f"select * from ragdb.{call % 'bomb'}")
        boss, bomb = seen.text
        assert boss.replace("boss", "") == bomb.replace("bomb", "")
    seen.text.clear()
    for run_id in (world.run_ids[0], 99999):
        seen.run("select * from ragdb.explain(%(id)s)", {"id": run_id})
    assert [text.split(" ")[3:5] for text in seen.text] == [["does", "not"], ["does", "not"]]


def test_a_forged_trace_shows_nothing(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    seen = become(PEOPLE["a reader under a where"])
    [row] = seen.run("select ragdb.record_run(%(run)s::jsonb) as id", {"run": arguments(world)["run"][0]})
    assert {r["run_id"] for r in seen.run("select run_id from ragdb.list_runs()")} == {row["id"]}
    seen.text.clear()
    [other] = seen.run("select ragdb.record_run(%(run)s::jsonb) as id", {"run": arguments(world)["run"][1]})
    rows = seen.run("select * from ragdb.explain(%(id)s, 100)", {"id": other["id"]})
    assert [r["chunk_id"] for r in rows] == world.chunk_ids
    assert seen.markers() <= {"markerseven"}
    # nor does it tell which documents there are
    seven = _of(query, "markerseven")
    assert query("select document_ids from ragdb.run where run_id = %s", row["id"]) == [([seven],)]
    assert query("select distinct purged from ragdb.citation where run_id = %s and document_id <> %s", row["id"], seven) == [
        (True,)
    ]


def _of(query: Query, uri: str) -> int:
    found: int = query("select document_id from ragdb.document where uri = %s", uri)[0][0]
    return found


def test_runs_of_one_role_that_serves_many_are_kept_apart(world: World, become: Callable[[Person], Seen]) -> None:
    shop = {"collection": "help", "verb": "search", "question": "of tenant", "pipeline": {}, "k": 1, "ms": 1}
    for tenant in ("7", "8"):
        seen = become(Person("shop", first=(f"set app.tenant = '{tenant}'",)))
        seen.run("select ragdb.record_run(%(run)s::jsonb)", {"run": json.dumps({**shop, "question": f"of tenant {tenant}"})})
        for source in ("run", "list_runs()", "list_runs('help', 1)"):
            assert [r["question"] for r in seen.run(f"select question from ragdb.{source}")] == [f"of tenant {tenant}"]
        assert seen.run("select question from ragdb.list_runs('open')") == []
    for source in ("run", "list_runs()"):
        assert become(Person("shop")).run(f"select question from ragdb.{source}") == []


def test_runs_come_newest_first_in_pages_over_all_collections(
    world: World, become: Callable[[Person], Seen], query: Query
) -> None:
    query("select ragdb.grant_collection('help', 'opener')")
    seen = become(Person("opener"))
    ids = []
    for n in range(6):
        run = {"collection": ("open", "help")[n % 2], "verb": "search", "question": str(n), "pipeline": {}, "k": 1, "ms": 1}
        ids += [r["id"] for r in seen.run("select ragdb.record_run(%(run)s::jsonb) as id", {"run": json.dumps(run)})]
    first = [r["run_id"] for r in seen.run("select run_id from ragdb.list_runs(how_many => 4)")]
    rest = [r["run_id"] for r in seen.run("select run_id from ragdb.list_runs(how_many => 4, before => %(b)s)", {"b": first[-1]})]
    assert first + rest == ids[::-1]
    assert [r["question"] for r in seen.run("select question from ragdb.list_runs('help')")] == ["5", "3", "1"]


def test_what_a_role_read_once_goes_with_its_grant(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    with RagDB(libpq_url(make_url(world.url).set(username="seven")), collection="help", embedder=FakeEmbedder()) as rag:
        answer = rag.ask("what about the router of markerseven")
        assert answer.outcome == "answered"
    seen = become(PEOPLE["a reader under a where"])
    assert len(seen.run("select * from ragdb.run")) == 1
    assert seen.run("select * from ragdb.citation") != []
    assert seen.run("select * from ragdb.explain(%(id)s)", {"id": answer.run_id}) != []
    assert query("select ragdb.revoke_collection('help', 'seven')") == [(1,)]
    assert seen.run("select * from ragdb.run") == seen.run("select * from ragdb.citation") == []
    assert seen.run("select * from ragdb.explain(%(id)s)", {"id": answer.run_id}) == []


def test_an_auditor_sees_questions_and_answers_and_no_documents(world: World, become: Callable[[Person], Seen]) -> None:
    seen = become(Person("auditor"))
    assert [r["run_id"] for r in seen.run("select run_id from ragdb.run order by 1")] == world.run_ids
    assert seen.run("select * from ragdb.run_latency") != []
    seen.text.clear()
    rows = seen.run("select * from ragdb.explain(%(id)s)", {"id": world.run_ids[0]})
    assert (
        [(r["label"], r["snippet"]) for r in rows if r["chunk_id"]]
        == [(f"chunk {r['chunk_id']}", None) for r in rows if r["chunk_id"]]
        != []
    )
    for statement in (
        "select * from ragdb.document",
        "select * from ragdb.chunk",
        "select * from ragdb.search('router', 'help')",
    ):
        seen.text.clear()
        assert seen.run(statement) == []
        assert "permission denied" in seen.text[0]


def test_a_reader_has_no_right_on_the_tables_that_hold_text_and_can_change_nothing(
    world: World, become: Callable[[Person], Seen]
) -> None:
    seen = become(PEOPLE["a reader under a where"])
    for statement in (
        *(
            f"select * from ragdb.{t}"
            for t in (
                "chunk",
                "embedding",
                "lexeme",
                "document_revision",
                "section",
                "query_vector",
                "collection_grant",
                "run_candidate",
                "overview",
            )
        ),
        "update ragdb.document set status = 'archived'",
        "delete from ragdb.run",
        "insert into ragdb.collection_grant (collection_id, grantee) values (1, 'seven')",
        "select ragdb.grant_collection('help', 'seven')",
        "select ragdb.put_document('help', '{}')",
        "select * from ragdb.prune('1 day')",
        "select * from ragdb.search_plan('router', 'help')",
        "select * from ragdb.lexical_query('router', 'help')",
        "alter table ragdb.document disable row level security",
        "create function ragdb.mine() returns int language sql as 'select 1'",
    ):
        seen.text.clear()
        assert seen.run(statement) == []
        assert "permission denied" in seen.text[0] or "must be owner" in seen.text[0], (statement, seen.text)


def test_a_live_filter_that_fails_tells_readers_nothing_of_its_tables(
    world: World, become: Callable[[Person], Seen], query: Query
) -> None:
    query("create table app.codes (document_id bigint, code text)")
    query("insert into app.codes select document_id, 'markereight' from ragdb.document")
    query("select ragdb.register_filter('by_code', 'select document_id from app.codes where code::integer = $1')")
    for call in (
        "search('router', 'help', \"where\" => <filter>)",
        "lexical_leg('router', 'help', \"where\" => <filter>)",
        f"semantic_leg('{{{','.join(map(str, NUMBERS))}}}', 'help', \"where\" => <filter>)",
        "list_documents('help', \"where\" => <filter>)",
    ):
        statement = "select * from ragdb." + call.replace("<filter>", """'{"filter": {"by_code": [1]}}'""")
        seen = become(PEOPLE["a reader under a where"])
        assert seen.run(statement) == []
        assert "a live filter failed; who writes documents sees why" in seen.text[-1]
        assert seen.markers() == set()
        with pytest.raises(psycopg.Error, match=r"a live filter failed: invalid input syntax.*markereight"):
            query(statement)


def test_grants_are_checked_when_they_are_given(world: World, query: Query) -> None:
    for arguments, expected in (
        ("'nosuch', 'seven'", 'collection "nosuch" does not exist'),
        ("'help', 'nosuch'", 'role "nosuch" does not exist'),
        ("'help', null", "role"),
        ("""'help', 'seven', '{"tenant": {"like": 7}}'""", "unknown operator"),
        ("""'help', 'seven', '[]'""", "where is array"),
        ("""'help', 'seven', null""", "where is null"),
        ("""'help', 'seven', '{"tenant": {"setting": "tenant"}}'""", "names no setting"),
        ("""'help', 'seven', '{"tenant": {"setting": "app.tenant", "gt": 1}}'""", "names no setting"),
        ("""'help', 'seven', '{"filter": {"nosuch": []}}'""", "no filter is registered"),
    ):
        with pytest.raises(psycopg.Error, match=expected):
            query(f"select ragdb.grant_collection({arguments})")
    before = query("select count(*) from ragdb.collection_grant")
    query("select ragdb.grant_collection('open', 'opener')")
    assert query("select count(*) from ragdb.collection_grant") == before, "the same grant again is no second row"
    query("select ragdb.grant_collection('open', 'public')")
    assert query("select ragdb.revoke_collection('help', 'twice', '{\"tenant\": 8}')") == [(1,)]
    assert query("select ragdb.revoke_collection('help', 'twice')") == [(1,)]


def test_a_grant_to_public_is_for_all_readers_and_a_dropped_role_harms_nobody(
    world: World, become: Callable[[Person], Seen], query: Query
) -> None:
    query("create role leaver; select ragdb.grant_collection('help', 'leaver'); drop role leaver")
    query("select ragdb.grant_collection('open', 'public')")
    for login in ("nothing", "seven"):
        assert [r["uri"] for r in become(Person(login)).run("select uri from ragdb.search('router', 'open')")][:1] == [
            "markeropen"
        ]
    assert become(Person("stranger")).run("select uri from ragdb.search('router', 'open')") == []


@pytest.mark.parametrize("operator", ["status", "any", "nested"])
def test_a_mandatory_where_takes_the_whole_grammar(
    world: World, become: Callable[[Person], Seen], query: Query, operator: str
) -> None:
    where = {
        "status": {"status": ["archived", "draft"]},
        "any": {"any": [{"uri": {"prefix": "markere"}}, {"tenant": {"setting": "app.tenant"}}]},
        "nested": {"any": [{"tenant": 8, "any": [{"uri": "none"}, {"owner": {"contains": "eight"}}]}]},
    }[operator]
    query("select ragdb.grant_collection('help', 'nothing', %s)", json.dumps(where))
    query("update ragdb.document set status = 'archived' where uri = 'markereight'")
    seen = become(Person("nothing"))
    assert [r["uri"] for r in seen.run("select uri from ragdb.document")] == ["markereight"]
    # the caller's own where, and its default of active documents, hold beside it
    assert seen.run("select uri from ragdb.search('router', 'help')") == []
    assert {
        r["uri"] for r in seen.run("select uri from ragdb.search('router', 'help', \"where\" => '{\"status\": \"any\"}')")
    } == {"markereight"}


def test_vectors_of_questions_are_kept_by_role(world: World, become: Callable[[Person], Seen]) -> None:
    """Else one could ask what others asked, or put a wrong vector under their question."""
    model_id, model = world.model
    keep = "select ragdb.keep_query_vector('layoffs in march', %(model)s, %(v)s)"
    one, other = become(Person("seven")), become(Person("twice"))
    one.run(keep, {"model": model, "v": NUMBERS})
    known = "select ragdb.known_query_vector('layoffs in march', %(id)s) as v"
    assert one.run(known, {"id": model_id})[0]["v"] is not None
    assert other.run(known, {"id": model_id})[0]["v"] is None
    one.run("""select ragdb.keep_rewrite('layoffs', '{"queries": [{"text": "redundancies"}]}')""")
    assert one.run("select ragdb.known_rewrite('layoffs') as q")[0]["q"] == [{"text": "redundancies"}]
    assert other.run("select ragdb.known_rewrite('layoffs') as q")[0]["q"] is None


def test_readers_have_no_table(world: World, query: Query) -> None:
    """A comparison that EXPLAIN ANALYZE shows to have been made before a policy would tell what stands in hidden rows."""
    assert query(
        "select c.relname from pg_class c, aclexplode(c.relacl) a where c.relnamespace = 'ragdb'::regnamespace "
        "and a.grantee = 'ragdb_reader'::regrole"
    ) == [("alembic_version",)]


BAIT = """
create table bait.loot (uri text);
create function bait.take() returns void language plpgsql volatile as $$ begin
  insert into bait.loot select g.uri from ragdb.get_document('boss', 'markerboss') g;
  insert into bait.loot select uri from ragdb.document;
exception when others then null; end $$;
create function bait.bait(int) returns int language plpgsql immutable as $$ begin perform bait.take(); return $1; end $$;
create table bait.bait (a int);
create index on bait.bait (bait.bait(a));
insert into bait.bait values (1)
"""


def test_maintenance_by_a_superuser_reads_nothing_for_the_owner_of_a_table(
    world: World, become: Callable[[Person], Seen], query: Query
) -> None:
    """ANALYZE, and autovacuum by itself, run an index's functions as the table's owner, in a superuser's session."""
    query("create schema bait; grant create, usage on schema bait to opener")
    seen = become(PEOPLE["a reader of one collection"])
    seen.conn.execute(BAIT.encode())
    query("analyze bait.bait")
    assert seen.run("select distinct uri from bait.loot where uri <> 'markeropen'") == []
    with pytest.raises(psycopg.Error, match="cannot tell who asks"):
        query("create materialized view bait.mv as select * from ragdb.list_documents('boss')")
    # an ordinary statement of the same kind still works
    query("create table bait.ours as select * from ragdb.list_documents('boss')")


def test_debug_output_tells_no_reader_what_exists(world: World) -> None:
    url = make_url(world.url).set(username="opener").update_query_dict({"options": "-c client_min_messages=debug5"})
    for call in ("search('router', '{}')", "document_title('{}', 'markerboss')", "collection_info('{}')", "list_documents('{}')"):
        told: dict[str, list[str]] = {}
        for collection in ("boss", "bomb"):
            with psycopg.connect(libpq_url(url), autocommit=True) as conn:
                told[collection] = []
                conn.add_notice_handler(lambda d, to=told[collection]: to.append(str(d.message_primary)))  # type: ignore[misc]
                with contextlib.suppress(psycopg.Error):
                    conn.execute(f"select * from ragdb.{call.format(collection)}".encode())
        assert [m for m in told["boss"] if "SubTransaction" in m] == [m for m in told["bomb"] if "SubTransaction" in m]


def test_a_grant_by_a_live_filter_that_fails_tells_nothing(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    query("create table app.codes (document_id bigint, code text)")
    query("insert into app.codes select document_id, 'markereight' from ragdb.document")
    query("select ragdb.register_filter('by_code', 'select document_id from app.codes where code::integer = $1')")
    query("""select ragdb.grant_collection('help', 'nothing', '{"filter": {"by_code": [1]}}')""")
    seen = become(Person("nothing"))
    walk(seen, world, works=False)
    assert seen.markers() == set()
    assert any("a live filter failed" in text for text in seen.text)


def test_a_cancelled_search_does_not_print_a_filter(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    definition = "select document_id from ragdb.document, generate_series(1, 20000000) g where ''markereight'' = g::text"
    query(f"select ragdb.register_filter('slow', '{definition}')")
    seen = become(PEOPLE["a reader of one collection"])
    seen.conn.execute("set statement_timeout = 200")
    for call in (
        "list_documents('open', '{\"filter\": {\"slow\": []}}')",
        "search('router', 'open', 5, '{\"filter\": {\"slow\": []}}')",
    ):
        seen.text.clear()
        assert seen.run(f"select * from ragdb.{call}") == []
        assert "canceling statement due to statement timeout" in seen.text[-1]
        assert seen.errors[-1] == "57014"
        assert seen.markers() == set()


def test_models_of_others_are_not_told(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    query("select ragdb.register_model('markerboss:model', 5)")
    seen = become(PEOPLE["a reader of one collection"])
    for call in (
        "semantic_leg('{1}', 'open', options => '{\"model_id\": 2}')",
        "fuse('{}', 'router', 'open', '{\"model_id\": 2, \"vector\": [1]}')",
        "search('router', 'open', options => '{\"model_id\": 2}')",
        "search('router', 'open', options => '{\"model_id\": 3}')",
    ):
        seen.text.clear()
        seen.run(f"select * from ragdb.{call}")
        assert "has no vector set of the model" in seen.text[-1]
    seen.run("select ragdb.keep_query_vector('q', 'markerboss:model', '{1}')")
    assert seen.markers() == set()


def test_odd_numbers_are_refused_by_their_name(world: World, become: Callable[[Person], Seen]) -> None:
    seen = become(PEOPLE["a reader of one collection"])
    for call in (
        "list_documents('open', how_many => -1)",
        "list_runs('open', how_many => -1)",
        "neighbors('{9}', -2147483648)",
        "fuse('{}', 'router', 'open', '{\"content_for\": \"x\"}')",
        "lexical_leg('router', 'open', options => '{\"exact_limit\": \"x\"}')",
        'record_run(\'{"collection": "open"}\')',
    ):
        seen.run(f"select * from ragdb.{call}")
        assert seen.errors[-1] == "RD004", (call, seen.text[-1])
    assert seen.run("select * from ragdb.document_spans('{5}', '{0}', '{9999999999}')")[0]["content"].startswith("# markeropen")
    assert seen.errors[-1] == "RD004"


def test_a_stranger_holds_up_no_writer(world: World, become: Callable[[Person], Seen], query: Query) -> None:
    stranger = become(Person("stranger"))
    stranger.conn.autocommit = False
    for name in ("reweigh", "lexical_stats", "upgrade"):
        for n in (1, 2, 3):
            stranger.run(f"select pg_advisory_xact_lock(hashtextextended('ragdb.{name}', {n}))")
    query("set statement_timeout = 5000")
    chunk = {"ordinal": 0, "content": "x", "context": "", "start": 0, "end": 1, "label": "x#00"}
    document = {"uri": "x", "content": "x", "chunking": "mine", "chunks": [chunk]}
    assert len(query("select * from ragdb.put_document('help', %s)", json.dumps(document))) == 1
    assert len(query("select * from ragdb.refresh_lexical_stats('help')")) == 1
