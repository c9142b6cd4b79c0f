"""ragdb sync: the documents that came from a folder become what the folder holds, and no other is touched."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from ragdb import Document, RagDB, ingest
from ragdb.errors import ConfigError, SyncRefused
from ragdb.ingest import folder as files
from ragdb.ingest import planning, source_state, syncing
from ragdb.testing import FakeEmbedder

Query = Callable[..., list[tuple[Any, ...]]]
OLD = 1_700_000_000.5  # a time long before these tests

TEXTS = {
    "router.md": "# Router\n\nHold the reset button for ten seconds.\n",
    "sub/手当.md": "# 手当\n\n在宅勤務手当は月3,500円を支給する。\n",
    "notes.txt": "The blue cable is the uplink.\n",
    "page.html": "<title>Page</title><main><p>Green tea in stock.</p></main>",
}


def write(folder: Path, name: str, text: str, *, at: float = OLD) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at, at))
    return path


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    for name, text in TEXTS.items():
        write(folder, name, text)
    return folder


def embedder(rag: RagDB) -> FakeEmbedder:
    made = rag.context.embedder()
    assert isinstance(made, FakeEmbedder)
    return made


def uris(query: Query) -> list[str]:
    return [uri for (uri,) in query('select uri from ragdb.document order by uri collate "C"')]


class _Opened:
    """Which files of a folder are opened while it is entered; the hook itself stays for the life of the process."""

    def __init__(self) -> None:
        self.below: str | None = None
        self.names: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and self.below and isinstance(args[0], (str, bytes)):
            name = os.fsdecode(args[0])
            if name.startswith(self.below) and not os.path.isdir(name):
                self.names.append(name)


_opened = _Opened()


@pytest.fixture
def opened() -> Iterator[Callable[[Path], list[str]]]:
    def start(folder: Path) -> list[str]:
        _opened.names, _opened.below = [], str(folder)
        return _opened.names

    yield start
    _opened.below = None


# --- add, change, delete ---------------------------------------------------------------------------


def test_a_folder_becomes_documents(rag: RagDB, docs: Path, query: Query) -> None:
    done = ingest.sync(rag, docs)
    assert done.added == sorted(TEXTS)
    assert (done.changed, done.renamed, done.deleted, done.unchanged, done.failed) == ([], [], [], 0, [])
    assert done.chunks == done.embedded == 4
    assert uris(query) == sorted(TEXTS)
    assert rag.search("green tea").hits[0].uri == "page.html"


def test_an_unchanged_folder_costs_no_look_into_a_file_no_model_and_no_write(
    rag: RagDB, docs: Path, query: Query, opened: Callable[[Path], list[str]]
) -> None:
    ingest.sync(rag, docs)
    before = query("select xmin::text, document_id from ragdb.document order by 2")
    calls = embedder(rag).calls
    names = opened(docs)
    done = ingest.sync(rag, docs)
    assert (done.unchanged, done.did, done.embedded) == (4, False, 0)
    assert names == []
    assert embedder(rag).calls == calls
    assert query("select xmin::text, document_id from ragdb.document order by 2") == before
    # the hook hears: a file that is read is heard
    write(docs, "notes.txt", "The red cable.\n", at=OLD + 5)
    ingest.sync(rag, docs)
    assert {Path(name).name for name in names} == {"notes.txt"}


def test_what_changed_is_read_again_and_only_its_new_text_embedded(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    write(docs, "router.md", TEXTS["router.md"] + "\n## Cables\n\nThe red cable.\n", at=OLD + 1)
    write(docs, "new.md", "# New\n\nA page.\n")
    done = ingest.sync(rag, docs)
    assert (done.added, done.changed, done.unchanged) == (["new.md"], ["router.md"], 3)
    assert done.embedded == 2


def test_one_sentence_of_a_hundred_chunks_costs_at_most_two_embeddings(rag: RagDB, tmp_path: Path) -> None:
    sections = [f"## Section {n}\n\nSentence number {n} stands here.\n" for n in range(100)]
    write(tmp_path / "d", "long.md", "# Long\n\n" + "\n".join(sections))
    assert ingest.sync(rag, tmp_path / "d").embedded >= 100
    sections[50] = "## Section 50\n\nAnother sentence stands here now.\n"
    write(tmp_path / "d", "long.md", "# Long\n\n" + "\n".join(sections), at=OLD + 1)
    done = ingest.sync(rag, tmp_path / "d")
    assert (done.changed, done.embedded) == (["long.md"], 1)


def test_a_change_of_the_same_length_is_seen_by_its_time(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    write(docs, "notes.txt", TEXTS["notes.txt"].replace("blue", "grey"), at=OLD + 1)
    assert ingest.sync(rag, docs).changed == ["notes.txt"]


def test_a_change_right_after_the_reading_is_seen_though_the_time_is_the_same(
    rag: RagDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "d", "a.md", "one one")
    now = path.stat().st_mtime_ns
    monkeypatch.setattr(source_state.time, "time_ns", lambda: now + 1_000_000)
    ingest.sync(rag, tmp_path / "d")
    path.write_text("two two")
    os.utime(path, ns=(now, now))
    assert ingest.sync(rag, tmp_path / "d").changed == ["a.md"]


def test_a_touched_file_is_hashed_once_and_only_its_state_is_stored(
    rag: RagDB, docs: Path, query: Query, opened: Callable[[Path], list[str]]
) -> None:
    ingest.sync(rag, docs)
    before = query("select document_id, ready_revision, ready_at from ragdb.document order by 1")
    os.utime(docs / "router.md", (OLD + 9, OLD + 9))
    names = opened(docs)
    assert ingest.sync(rag, docs).unchanged == 4
    assert [Path(name).name for name in names] == ["router.md"]
    names.clear()
    assert ingest.sync(rag, docs).unchanged == 4
    assert names == []
    assert query("select document_id, ready_revision, ready_at from ragdb.document order by 1") == before
    assert query("select (source_state ->> 'mtime_ns')::numeric from ragdb.document where uri = 'router.md'")[0][0] == int(
        (OLD + 9) * 1e9
    )


def test_a_file_that_is_gone_takes_its_document_along(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    (docs / "page.html").unlink()
    done = ingest.sync(rag, docs)
    assert (done.deleted, done.unchanged) == (["page.html"], 3)
    assert done.erased["chunks"] == done.erased["embeddings"] == 1
    assert "page.html" not in uris(query)
    assert all(hit.uri != "page.html" for hit in rag.search("green tea").hits)


def test_what_people_set_outlives_a_change_of_the_file(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    query("update ragdb.document set status = 'archived', owner = 'SRE', metadata = '{\"tenant\": 7}' where uri = 'router.md'")
    write(docs, "router.md", "# Router\n\nAnother text.\n", at=OLD + 1)
    ingest.sync(rag, docs)
    assert query("select status, owner, metadata from ragdb.document where uri = 'router.md'") == [
        ("archived", "SRE", {"tenant": 7})
    ]


# --- rename ----------------------------------------------------------------------------------------


def test_a_renamed_file_keeps_its_row_its_chunks_and_what_quotes_it(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    query("update ragdb.document set status = 'draft', owner = 'SRE', metadata = '{\"tenant\": 7}' where uri = 'router.md'")
    rag.ask("Which button resets the router?", where={"status": "any"})
    before = query("select document_id, ready_revision from ragdb.document where uri = 'router.md'")
    chunks = query("select chunk_id from ragdb.chunk order by 1")
    quotes = query("select count(*) from ragdb.citation where quote is not null")
    texts = len(embedder(rag).texts)
    (docs / "deep").mkdir()
    (docs / "router.md").rename(docs / "deep" / "reset.md")
    done = ingest.sync(rag, docs)
    assert done.renamed == [{"from": "router.md", "to": "deep/reset.md"}]
    assert (done.added, done.changed, done.deleted, done.embedded) == ([], [], [], 0)
    assert len(embedder(rag).texts) == texts
    assert query("select document_id, ready_revision from ragdb.document where uri = 'deep/reset.md'") == before
    assert query("select chunk_id from ragdb.chunk order by 1") == chunks
    assert query("select count(*) from ragdb.citation where quote is not null") == quotes
    assert query("select status, owner, metadata, source from ragdb.document where uri = 'deep/reset.md'") == [
        ("draft", "SRE", {"tenant": 7}, str(docs / "deep" / "reset.md"))
    ]
    assert rag.search("reset button", where={"status": "any"}).hits[0].label.startswith("deep/reset#router#")
    assert ingest.sync(rag, docs).unchanged == 4


def test_a_title_from_the_name_of_the_file_follows_the_name(rag: RagDB, docs: Path) -> None:
    """It stands above every chunk, and is searched: under its new name the text is another one."""
    ingest.sync(rag, docs)
    (docs / "notes.txt").rename(docs / "cabling.txt")
    done = ingest.sync(rag, docs)
    assert done.renamed == [{"from": "notes.txt", "to": "cabling.txt"}]
    found = rag.get("cabling.txt")
    assert found is not None
    assert (found.title, found.content, done.embedded) == ("cabling", TEXTS["notes.txt"], 1)
    assert rag.search("cabling").hits[0].uri == "cabling.txt"


def test_a_new_suffix_cuts_the_text_as_the_suffix_says(rag: RagDB, tmp_path: Path, query: Query) -> None:
    text = "# Router\n\nOne line.\n\n# More\n\nAnother line.\n"
    write(tmp_path / "d", "Router.txt", text)
    ingest.sync(rag, tmp_path / "d")
    assert query("select count(*) from ragdb.section") == [(0,)]
    (tmp_path / "d" / "Router.txt").rename(tmp_path / "d" / "Router.md")
    assert ingest.sync(rag, tmp_path / "d").renamed == [{"from": "Router.txt", "to": "Router.md"}]
    assert [heading for (heading,) in query("select heading from ragdb.section order by ordinal")] == ["Router", "More"]
    assert ingest.sync(rag, tmp_path / "d").unchanged == 1


def test_of_equal_files_the_one_of_the_same_name_is_the_renamed_one(rag: RagDB, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    for name in ("a/x.md", "b/y.md", "stays.md", "stays2.md", "stays3.md"):
        write(folder, name, "# Same\n\nThe same text.\n")
    ingest.sync(rag, folder)
    (folder / "c").mkdir()
    (folder / "a/x.md").rename(folder / "c" / "x.md")
    (folder / "b/y.md").rename(folder / "c" / "y.md")
    done = ingest.sync(rag, folder)
    assert done.renamed == [{"from": "a/x.md", "to": "c/x.md"}, {"from": "b/y.md", "to": "c/y.md"}]
    assert done.embedded == 0


def test_a_moved_and_changed_file_is_a_new_document(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    (docs / "router.md").unlink()
    write(docs, "other.md", "# Other\n\nAnother text.\n")
    done = ingest.sync(rag, docs)
    assert (done.added, done.renamed, done.deleted) == (["other.md"], [], ["router.md"])


def test_no_hand_renames_a_document(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    with pytest.raises(psycopg.Error, match="keeps its collection and uri"):
        query("update ragdb.document set uri = 'x' where uri = 'router.md'")
    assert query("select ragdb.rename_document('help', 'none', 'x', null, 'x')") == [(False,)]
    with pytest.raises(psycopg.Error, match="there is one of that name"):
        query("select ragdb.rename_document('help', 'router.md', 'notes.txt', null, 'notes')")


# --- whose documents -------------------------------------------------------------------------------


def test_documents_of_other_origin_are_never_touched(rag: RagDB, docs: Path, tmp_path: Path, query: Query) -> None:
    rag.add(Document("app/1", "An article."))
    write(tmp_path / "docs-2", "beside.md", "# Beside\n\nAnother folder, whose name begins alike.\n")
    write(tmp_path / "other", "router.md", "# Another\n\nAnother router.\n")
    ingest.sync(rag, tmp_path / "docs-2")
    ingest.sync(rag, tmp_path / "other", prefix="other/")
    before = query("select document_id, xmin::text from ragdb.document order by 1")
    ingest.sync(rag, docs)
    for path in docs.rglob("*.md"):
        path.unlink()
    (tmp_path / "docs-2" / "beside.md").unlink()  # its own sync will find that
    assert sorted(ingest.sync(rag, docs, yes=True).deleted) == ["router.md", "sub/手当.md"]
    assert query("select document_id, xmin::text from ragdb.document where document_id <= %s order by 1", before[-1][0]) == before


def test_a_uri_of_another_origin_is_refused_and_left_alone(rag: RagDB, docs: Path, tmp_path: Path) -> None:
    rag.add(Document("router.md", "The application's own."))
    write(tmp_path / "other", "notes.txt", "from elsewhere")
    ingest.sync(rag, tmp_path / "other")
    (tmp_path / "other" / "notes.txt").unlink()
    done = ingest.sync(rag, docs)
    reasons = {Path(failure.path).name: failure.error for failure in done.failed}
    assert "was added by a program, not from" in reasons["router.md"]
    assert f"came from {tmp_path / 'other' / 'notes.txt'}, not from {docs}" in reasons["notes.txt"]
    assert "--prefix" in reasons["router.md"]
    for uri, text in (("router.md", "The application's own."), ("notes.txt", "from elsewhere")):
        found = rag.get(uri)
        assert found is not None
        assert found.content == text
    assert ingest.sync(rag, docs, prefix="docs/").failed == []


def test_two_prefixes_are_two_sets_of_documents(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs, prefix="a/")
    ingest.sync(rag, docs, prefix="b/")
    (docs / "router.md").unlink()
    assert ingest.sync(rag, docs, prefix="a/").deleted == ["a/router.md"]
    assert "b/router.md" in uris(query)


def test_a_glob_is_no_reason_to_delete_what_it_leaves_out(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    (docs / "notes.txt").unlink()
    done = ingest.sync(rag, docs, glob="*.md")
    assert (done.deleted, done.unchanged) == ([], 2)
    assert ingest.sync(rag, docs, glob="*.txt", yes=True).deleted == ["notes.txt"]


def test_a_document_that_a_program_put_over_a_file_s_is_the_file_s_again(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    rag.add(Document("router.md", "# Router\n\nOverwritten."))
    assert ingest.sync(rag, docs).changed == ["router.md"]
    found = rag.get("router.md")
    assert found is not None
    assert found.content == TEXTS["router.md"]


def test_what_add_brought_in_is_not_read_again(rag: RagDB, docs: Path) -> None:
    found = files.find([docs])
    list(files.add_files(rag.context, found.files))
    assert ingest.sync(rag, docs).unchanged == 4


def test_hidden_files_links_and_unknown_suffixes_are_as_for_add(rag: RagDB, docs: Path, tmp_path: Path) -> None:
    write(docs, ".hidden.md", "hidden")
    write(docs, ".git/config.md", "hidden")
    write(docs, "a.png", "x")
    write(tmp_path / "elsewhere", "linked.md", "# Linked\n\nLinked text.\n")
    (docs / "linked.md").symlink_to(tmp_path / "elsewhere" / "linked.md")
    (docs / "folder").symlink_to(tmp_path / "elsewhere")
    (docs / "dead.md").symlink_to(docs / "nowhere.md")
    os.mkfifo(docs / "pipe.md")
    done = ingest.sync(rag, docs)
    assert done.added == sorted([*TEXTS, "linked.md"])
    assert [Path(failure.path).name for failure in done.failed] == ["dead.md"]


def test_a_file_that_is_passed_over_now_keeps_its_document(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    (docs / "sub").rename(docs.parent / "away")
    (docs / "sub").symlink_to(docs.parent / "away")
    done = ingest.sync(rag, docs)
    assert (done.deleted, "sub/手当.md" in uris(query)) == ([], True)


def test_a_name_with_a_carriage_return_is_one_document(rag: RagDB, docs: Path) -> None:
    write(docs, "a\rb.md", "# Odd\n\nOdd name.\n")
    assert "a\nb.md" in ingest.sync(rag, docs).added
    assert ingest.sync(rag, docs).unchanged == 5


# --- safety ----------------------------------------------------------------------------------------


def test_an_empty_or_missing_folder_deletes_nothing_unless_told(rag: RagDB, docs: Path, tmp_path: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    docs.rename(tmp_path / "away")
    with pytest.raises(SyncRefused, match="is not there, and 4 of its 4 documents would be deleted"):
        ingest.sync(rag, docs)
    docs.mkdir()
    with pytest.raises(SyncRefused, match="holds no file to read, and 4 of its 4"):
        ingest.sync(rag, docs)
    assert len(uris(query)) == 4
    assert len(ingest.sync(rag, docs, yes=True).deleted) == 4
    assert uris(query) == []
    assert ingest.sync(rag, docs).did is False
    with pytest.raises(SyncRefused, match="no folder"):
        ingest.sync(rag, tmp_path / "never")
    with pytest.raises(ConfigError, match="is a file"):
        ingest.sync(rag, write(tmp_path, "file.md", "x"))


def test_more_than_half_going_is_refused_and_nothing_changed(rag: RagDB, docs: Path, query: Query) -> None:
    ingest.sync(rag, docs)
    for name in ("router.md", "notes.txt", "page.html"):
        (docs / name).unlink()
    write(docs, "new.md", "# New\n\nnew\n")
    with pytest.raises(SyncRefused, match="3 of its 4 documents"):
        ingest.sync(rag, docs)
    assert uris(query) == sorted(TEXTS)
    write(docs, "router.md", TEXTS["router.md"])
    assert len(ingest.sync(rag, docs).deleted) == 2  # half is not more than half


def test_a_file_that_cannot_be_read_keeps_its_document_and_is_a_failure(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    (docs / "router.md").write_bytes(b"\x89PNG\r\n\x1a\n")
    (docs / "notes.txt").unlink()
    (docs / "notes.txt").symlink_to(docs / "nowhere.txt")
    done = ingest.sync(rag, docs)
    assert {Path(failure.path).name for failure in done.failed} == {"router.md", "notes.txt"}
    for name in ("router.md", "notes.txt"):
        found = rag.get(name)
        assert found is not None
        assert found.content == TEXTS[name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permissions_that_are_missing_delete_nothing(rag: RagDB, docs: Path) -> None:
    write(docs, "locked/a.md", "# A\n\na\n")
    ingest.sync(rag, docs)
    for path in (docs / "router.md", docs / "locked"):
        path.chmod(0)
    try:
        done = ingest.sync(rag, docs)
    finally:
        (docs / "locked").chmod(0o755)
    assert done.deleted == []
    assert {Path(failure.path).name for failure in done.failed} == {"router.md", "locked"}


def test_an_end_in_between_keeps_what_was_done_and_the_next_call_goes_on(rag: RagDB, docs: Path) -> None:
    made = embedder(rag)

    def interrupted(texts: list[str]) -> None:
        if any("reset button" in text for text in texts):
            raise KeyboardInterrupt

    made.fail = interrupted
    with pytest.raises(KeyboardInterrupt):
        ingest.sync(rag, docs)
    made.fail = None
    done = ingest.sync(rag, docs)
    assert sorted([*done.added, *done.changed]) == ["router.md", "sub/手当.md"]
    assert done.unchanged == 2
    found = rag.get("router.md")
    assert found is not None
    assert found.ingest_state == "ready"


def test_a_document_that_failed_is_tried_again(rag: RagDB, docs: Path) -> None:
    embedder(rag).fail = RuntimeError("down")
    assert len(ingest.sync(rag, docs).failed) == 4
    embedder(rag).fail = None
    done = ingest.sync(rag, docs)
    assert (sorted(done.changed), done.failed) == (sorted(TEXTS), [])
    assert ingest.sync(rag, docs).unchanged == 4


def test_a_second_sync_of_the_folder_is_told_to_wait(rag: RagDB, docs: Path, tmp_path: Path) -> None:
    with syncing.locked(rag.context, docs):
        with pytest.raises(SyncRefused, match=r"another sync of .* is running"):
            ingest.sync(rag, docs)
        write(tmp_path / "other", "a.md", "# A\n\na\n")
        assert ingest.sync(rag, tmp_path / "other").added == ["a.md"]  # another folder
        assert len(ingest.sync(rag, docs, dry_run=True).added) == 4
    assert len(ingest.sync(rag, docs).added) == 4


def test_syncs_at_the_same_time_end_in_the_folder_s_state(rag: RagDB, docs: Path, query: Query) -> None:
    refused = []

    def one() -> None:
        try:
            ingest.sync(rag, docs)
        except SyncRefused as error:
            refused.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) <= 3
    assert uris(query) == sorted(TEXTS)
    assert query("select count(*) from ragdb.chunk") == [(4,)]


# --- read with -------------------------------------------------------------------------------------


def test_other_rules_and_another_chunker_read_the_files_again(ragdb_url: str, docs: Path, tmp_path: Path) -> None:
    rules = write(tmp_path, "rules.toml", '[[rule]]\nname = "a"\nfield = "metadata.uplink"\npatterns = [\'(\\w+) cable\']\n')
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as plain:
        ingest.sync(plain, docs)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), rules=rules) as ruled:
        done = ingest.sync(ruled, docs)
        assert (done.changed, done.unchanged, done.embedded) == (["notes.txt"], 3, 0)
        found = ruled.get("notes.txt")
        assert found is not None
        assert found.metadata == {"uplink": "blue"}
        assert ingest.sync(ruled, docs).unchanged == 4
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), rules=rules, chunker="sliding:8/2") as cut:
        assert len(ingest.sync(cut, docs).changed) == 4
        assert ingest.sync(cut, docs).unchanged == 4


def test_show_tells_what_is_known_of_the_file(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    found = rag.get("notes.txt")
    assert found is not None
    assert found.source_state is not None
    assert found.source_state["size"] == len(TEXTS["notes.txt"])
    assert found.source_state["sha256"] == source_state.sha256(docs / "notes.txt")


# --- json lines ------------------------------------------------------------------------------------


def lines(folder: Path, name: str, rows: dict[str, str], *, at: float = OLD) -> Path:
    return write(folder, name, "".join(json.dumps({"uri": uri, "content": text}) + "\n" for uri, text in rows.items()), at=at)


def test_the_lines_of_a_file_are_added_changed_and_deleted(
    rag: RagDB, tmp_path: Path, query: Query, opened: Callable[[Path], list[str]]
) -> None:
    folder = tmp_path / "d"
    lines(folder, "all.jsonl", {"a": "alpha", "b": "beta", "c": "gamma"})
    assert ingest.sync(rag, folder).added == ["a", "b", "c"]
    names = opened(folder)
    assert ingest.sync(rag, folder).unchanged == 3
    assert names == []
    lines(folder, "all.jsonl", {"a": "alpha", "b": "other", "d": "delta"}, at=OLD + 1)
    assert ingest.sync(rag, folder, dry_run=True).deleted == ["c"]
    done = ingest.sync(rag, folder)
    assert (done.added, done.changed, done.deleted, done.unchanged) == (["d"], ["b"], ["c"], 1)
    os.utime(folder / "all.jsonl", (OLD + 2, OLD + 2))
    assert ingest.sync(rag, folder).unchanged == 3
    (folder / "all.jsonl").rename(folder / "every.jsonl")
    done = ingest.sync(rag, folder)
    assert (done.deleted, uris(query)) == ([], ["a", "b", "d"])
    assert query("select distinct source from ragdb.document") == [(str(folder / "every.jsonl"),)]


def test_a_bad_line_deletes_nothing_and_the_file_is_read_again(rag: RagDB, tmp_path: Path, query: Query) -> None:
    folder = tmp_path / "d"
    path = lines(folder, "all.jsonl", {"a": "alpha", "b": "beta", "c": "gamma"})
    ingest.sync(rag, folder)
    write(folder, "all.jsonl", path.read_text().replace('"content": "beta"', '"content": '), at=OLD + 1)
    for _ in range(2):
        done = ingest.sync(rag, folder)
        assert ("line 2" in done.failed[0].error, done.deleted) == (True, [])
    assert uris(query) == ["a", "b", "c"]


def test_a_file_that_lost_most_of_its_lines_is_asked_about(rag: RagDB, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    lines(folder, "all.jsonl", {"a": "alpha", "b": "beta", "c": "gamma"})
    ingest.sync(rag, folder)
    lines(folder, "all.jsonl", {"a": "alpha"}, at=OLD + 1)
    with pytest.raises(SyncRefused, match="2 of its 3 documents"):
        ingest.sync(rag, folder)
    assert ingest.sync(rag, folder, yes=True).deleted == ["b", "c"]


# --- what it costs ---------------------------------------------------------------------------------


def test_a_dry_run_shows_everything_and_writes_nothing(rag: RagDB, docs: Path, query: Query) -> None:
    assert len(ingest.sync(rag, docs, dry_run=True).added) == 4
    assert query("select count(*) from ragdb.collection") == [(0,)]
    ingest.sync(rag, docs)
    write(docs, "router.md", "# Router\n\nnew\n", at=OLD + 1)
    (docs / "notes.txt").rename(docs / "cabling.txt")
    (docs / "page.html").unlink()
    write(docs, "new.md", "# New\n\nnew\n")
    before = query("select document_id, xmin::text from ragdb.document order by 1")
    dry = ingest.sync(rag, docs, dry_run=True)
    assert (dry.added, dry.changed, dry.deleted, dry.unchanged) == (["new.md"], ["router.md"], ["page.html"], 1)
    assert dry.renamed == [{"from": "notes.txt", "to": "cabling.txt"}]
    assert query("select document_id, xmin::text from ragdb.document order by 1") == before
    done = ingest.sync(rag, docs)
    assert (done.added, done.changed, done.renamed, done.deleted) == (dry.added, dry.changed, dry.renamed, dry.deleted)


def test_ten_thousand_unchanged_files_take_a_handful_of_calls(
    rag: RagDB, tmp_path: Path, opened: Callable[[Path], list[str]], monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    folder = tmp_path / "d"
    for n in range(10_000):
        if n % 100 == 0:
            (folder / f"{n // 100}").mkdir(parents=True)
        path = folder / f"{n // 100}" / f"{n}.md"
        path.write_text(f"# Page {n}\n\nText {n}.\n")
        os.utime(path, (OLD, OLD))
    write(folder, "first.md", "# First\n\nfirst\n")
    ingest.sync(rag, folder, glob="first.md")
    read_with = source_state.Reading(rag.context).read_with(folder / "0" / "0.md")
    # as a sync leaves them, without ten thousand readings here
    rows = []
    for path in folder.rglob("[0-9]*.md"):
        known = source_state.look(path)
        state = {"size": known.size, "mtime_ns": known.mtime_ns, "sha256": "", "read_with": read_with}
        rows.append({"uri": path.relative_to(folder).as_posix(), "source": str(path), "state": state})
    query(
        "insert into ragdb.document (collection_id, uri, source, source_state, ingest_state, ready_revision) "
        "select c.collection_id, x.uri, x.source, x.state, 'ready', 1 from ragdb.collection c, jsonb_to_recordset(%s) as x(uri text, source text, state jsonb)",
        Jsonb(rows),
    )
    calls = []
    database = rag.context.database
    call = database.call
    monkeypatch.setattr(database, "call", lambda name, /, **arguments: (calls.append(name), call(name, **arguments))[1])
    names = opened(folder)
    before = embedder(rag).calls
    done = ingest.sync(rag, folder)
    assert (done.unchanged, done.did) == (10_001, False)
    assert (names, embedder(rag).calls) == ([], before)
    assert len(calls) <= 10, calls


def test_the_documents_of_a_folder_are_found_by_its_index(rag: RagDB, query: Query) -> None:
    rag.add(Document("a", "alpha", source="/srv/docs/a.md"))
    query(
        "insert into ragdb.document (collection_id, uri, source, ingest_state) select collection_id, 'x' || n, '/home/' || n || '/x.md', 'ready' from ragdb.collection, generate_series(1, 5000) n"
    )
    long = "/srv/docs/" + "x" * 3000
    for n, source in enumerate(
        ("/srv/docs", "/srv/docs0/x.md", "/srv/docs-2/x.md", "/srv/doc/x.md", "/srv/docs/sub/深い.md", long)
    ):
        rag.add(Document(f"d{n}", f"text {n}", source=source))
    query("analyze ragdb.document")
    rag.close()  # its counts are told when a session ends
    before = query("select sum(seq_scan)::int from pg_stat_user_tables where relname = 'document'")
    found, last = [], {"source": "", "document_id": 0}
    # one row a page: pages are by source and id
    while rows := rag.context.database.call(
        "documents_below",
        collection="help",
        folder="/srv/docs",
        after_source=last["source"],
        after_id=last["document_id"],
        how_many=1,
    ):
        found += [row["source"] for row in rows]
        last = rows[-1]
    assert found == ["/srv/docs", "/srv/docs/a.md", "/srv/docs/sub/深い.md", long]
    assert [row["source"] for row in rag.context.database.call("documents_below", collection="help", folder=long)] == [long]
    assert [
        row["uri"] for row in rag.context.database.call("documents_from", collection="help", files={"sources": [long, "/x"]})
    ] == ["d5"]
    rag.close()  # its counts are told when a session ends
    assert query("select sum(seq_scan)::int from pg_stat_user_tables where relname = 'document'") == before


# --- planning of a part ----------------------------------------------------------------------------


def test_a_part_of_the_folder_is_planned_without_the_rest(rag: RagDB, docs: Path) -> None:
    ingest.sync(rag, docs)
    write(docs, "router.md", "# Router\n\nnew\n", at=OLD + 1)
    write(docs, "notes.txt", "new\n", at=OLD + 1)
    (docs / "sub" / "手当.md").unlink()
    part = planning.plan(rag.context, docs, only=[str(docs / "router.md"), str(docs / "sub")])
    assert [file.uri for file in part.changed] == ["router.md"]
    assert [row.uri for row in part.deleted] == ["sub/手当.md"]
    assert part.unchanged == 0
