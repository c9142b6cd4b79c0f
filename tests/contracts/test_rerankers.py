"""The rerankers themselves: a real ONNX model, servers of both spellings and of every fault, a language model, the cache."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragdb import models
from ragdb.adapters import load, modules, resolve
from ragdb.errors import ConfigError, RerankerError
from ragdb.stages.rerank import rerank
from ragdb.testing import FakeLLM
from ragdb.testing.server import FakeOpenAIServer, Reply, Request
from ragdb.types import Hit, Message, Query, Ranking

QUESTION = "在宅勤務手当はいくらですか？"
PASSAGES = ["社員食堂は11時半に開きます。", "在宅勤務手当は月額5,000円です。", "The office closes at seven."]


def test_each_adapter_has_an_example_of_its_name() -> None:
    assert set(modules("rerankers")) == {"flashrank", "cross-encoder", "http", "llm"}
    assert all(getattr(adapter, "example", "") for adapter in modules("rerankers").values())


# --- FlashRank ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(test_data: Path) -> Path:
    found = test_data.parent / "models" / "mini-ja-en"
    if not found.is_dir():
        pytest.skip(f"there is no cross-encoder in {found}")
    return found


@pytest.fixture(scope="module")
def flashrank(folder: Path) -> Any:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    before = list(logging.getLogger().handlers)
    made = load("rerankers", f"flashrank:{folder}")
    assert logging.getLogger().handlers == before, "the program's logging is the program's own"
    return made


def test_a_real_cross_encoder_puts_the_answer_first(flashrank: Any) -> None:
    scores = flashrank.score(QUESTION, PASSAGES)
    assert max(range(3), key=scores.__getitem__) == 1
    assert all(0 <= score <= 1 for score in scores)
    one_by_one = [flashrank.score(QUESTION, [text])[0] for text in PASSAGES]
    assert scores == pytest.approx(one_by_one, abs=0.05), "a passage's score does not depend on its neighbours"
    assert flashrank.knows_japanese()
    assert flashrank.count_tokens("在宅勤務手当") > 1
    assert flashrank.count_tokens("word " * 2000) > 1500, "counting cuts nothing"


def test_odd_texts_are_scored(flashrank: Any) -> None:
    scores = flashrank.score("a\x00b \ud800", ["", "\x00", "x" * 20000, "👩‍👩‍👧"])
    assert len(scores) == 4


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    with pytest.raises(RerankerError, match=r"holds no model.*one \.onnx file, and holds none"):
        load("rerankers", f"flashrank:{tmp_path}")
    with pytest.raises(RerankerError, match="there is no folder"):
        load("rerankers", f"flashrank:{tmp_path / 'none'}")


def test_a_model_that_was_not_fetched_is_not_downloaded(tmp_path: Path) -> None:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    began = time.monotonic()
    with pytest.raises(RerankerError, match="run: ragdb fetch-model ms-marco-MiniLM-L-12-v2"):
        load("rerankers", "flashrank:ms-marco-MiniLM-L-12-v2", folder=tmp_path)
    assert time.monotonic() - began < 1
    assert models.cached_reranker(tmp_path) is None


# --- sentence-transformers ------------------------------------------------------------------------


@pytest.mark.st
def test_a_cross_encoder_from_a_folder_scores_and_one_that_is_not_here_is_named(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra sentence-transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "office", "closes", "at", "seven", "where"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=1
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    reranker = load("rerankers", f"cross-encoder:{tmp_path}")
    scores = reranker.score("where the office", ["the office closes at seven", "seven", "\x00"])
    assert len(scores) == 3
    assert all(isinstance(score, float) for score in scores)
    assert reranker.count_tokens("the office closes") == 3
    assert not reranker.knows_japanese()
    with pytest.raises(RerankerError, match="there is no folder"):
        load("rerankers", "cross-encoder:/no/such/folder")
    began = time.monotonic()
    with pytest.raises(RerankerError, match="hf download no/such-model"):
        load("rerankers", "cross-encoder:no/such-model")
    assert time.monotonic() - began < 10


# --- the cache ------------------------------------------------------------------------------------


def archive(*names: str, folder: str = "some/model/") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name in names:
            file.writestr(folder + name, "{}")
    return made.getvalue()


WHOLE = ("tokenizer.json", "config.json", "tokenizer_config.json", "special_tokens_map.json", "model.onnx")


class Server:
    """A server whose next replies a test sets."""

    def __init__(self, fake: FakeOpenAIServer, replies: list[Reply]) -> None:
        self.fake = fake
        self._replies = replies
        self.url = f"{fake.base_url}/rerank"

    def will(self, *replies: Reply) -> None:
        self._replies[:] = replies

    @property
    def requests(self) -> list[Request]:
        return self.fake.requests


@pytest.fixture
def server() -> Iterator[Server]:
    replies: list[Reply] = []
    with FakeOpenAIServer(rerank=lambda _: replies.pop(0)) as fake:
        yield Server(fake, replies)


def test_a_fetched_model_is_there_whole(tmp_path: Path, server: Server) -> None:
    to = models.home(tmp_path)
    server.will(Reply(archive(*WHOLE)))
    came: list[tuple[int, int | None]] = []
    folder = models.fetch(models.DEFAULT_RERANKER, to=to, url=server.url, progress=lambda *at: came.append(at))
    assert folder == tmp_path / "models" / models.DEFAULT_RERANKER
    assert {path.name for path in folder.iterdir()} == set(WHOLE)
    assert came[-1][0] == came[-1][1]
    assert models.cached_reranker(to) == models.DEFAULT_RERANKER
    assert models.fetch(models.DEFAULT_RERANKER, to=to, url=server.url) == folder
    assert len(server.requests) == 1, "what is there is not fetched again"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply("not here", status=404), "could not be fetched"),
        (Reply.html(), "is no archive"),
        (Reply(archive(*WHOLE)[:200]), "is no archive"),
        (Reply(archive(*WHOLE), cut=True), "could not be fetched|broke off"),
        (Reply(archive(*WHOLE[:-1])), r"lacks its \.onnx file"),
        (Reply(archive("tokenizer.json", "model.onnx")), "lacks config.json"),
        (Reply(archive("readme.md")), "holds 0 models"),
        (Reply(archive("tokenizer.json", folder="../../")), "leads out of its folder"),
    ],
)
def test_what_cannot_be_fetched_whole_leaves_nothing(tmp_path: Path, server: Server, reply: Reply, why: str) -> None:
    server.will(reply)
    with pytest.raises(RerankerError, match=why):
        models.fetch(models.DEFAULT_RERANKER, to=models.home(tmp_path), url=server.url)
    assert list(tmp_path.iterdir()) == [], "no empty folder either"
    assert list(tmp_path.parent.glob("tokenizer.json")) == []


@pytest.mark.parametrize("name", ["nosuch", "../x", "", "a/b", "a\nb", "x" * 300])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="MultiBERT"):
        models.fetch(name, to=tmp_path)


def test_auto_takes_the_multilingual_model_else_the_newest(tmp_path: Path) -> None:
    for age, name in ((200, "old"), (100, "new"), (0, ".fetch-broken")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    assert models.cached_reranker(tmp_path) == "new"
    (tmp_path / models.DEFAULT_RERANKER).mkdir()
    assert models.cached_reranker(tmp_path) == models.DEFAULT_RERANKER
    assert models.cached_reranker(tmp_path / "none") is None


def test_a_place_that_is_none_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RerankerError, match="see RAGDB_HOME"):
        models.fetch(models.DEFAULT_RERANKER, to=models.home(tmp_path / "file"), url="http://127.0.0.1:9/x.zip")
    with pytest.raises(ConfigError, match="no web address"):
        models.fetch(models.DEFAULT_RERANKER, to=tmp_path, url="file:///tmp/x.zip")


# --- a server -------------------------------------------------------------------------------------


def cohere(scores: dict[int, float]) -> Reply:
    return Reply.json({"results": [{"index": i, "relevance_score": s} for i, s in scores.items()]})


def test_scores_come_back_by_index_in_whatever_order(server: Server) -> None:
    reranker = load("rerankers", f"http:{server.url}#some-model", api_key="secret")
    server.will(cohere({2: 0.2, 0: 0.9, 1: 0.5}))
    assert reranker.score("q", ["a", "b", "c"]) == [0.9, 0.5, 0.2]
    [request] = server.requests
    assert request.body == {
        "query": "q",
        "documents": ["a", "b", "c"],
        "model": "some-model",
        "top_n": 3,
        "return_documents": False,
    }
    assert request.headers["authorization"] == "Bearer secret"


def test_text_embeddings_inference_calls_documents_texts(server: Server) -> None:
    reranker = load("rerankers", f"http:{server.url}")
    tei = Reply.json([{"index": 1, "score": 0.1}, {"index": 0, "score": 0.7}])
    server.will(Reply("missing field `texts`", status=422), tei, tei)
    assert reranker.score("q", ["a", "b"]) == [0.7, 0.1]
    assert reranker.score("q", ["a", "b"]) == [0.7, 0.1]
    assert [sorted(request.body) for request in server.requests[1:]] == [["query", "texts"]] * 2, "learnt once"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply("boom", status=500), "answered 500: boom; see its log"),
        (Reply("no", status=401), "RAGDB_RERANKER_API_KEY"),
        (Reply("no", status=404), "often ending in /rerank"),
        (Reply.html(), "answered no JSON"),
        (Reply.broken(), "answered no JSON"),
        (cohere({0: 0.5}), "gave 1 scores for 2 passages"),
        (cohere({0: 0.5, 7: 0.1}), "gave 2 scores for 2 passages"),
        (Reply.json({"results": [{"index": 0, "relevance_score": None}, {"index": 1, "relevance_score": 1}]}), "gave 1 scores"),
        (Reply.json({"results": "none"}), "gave 0 scores"),
        (Reply("late", delay=3), "did not answer in time"),
        (Reply("x" * 100, drip=0.1), "did not answer in time"),
    ],
)
def test_a_server_at_fault_is_an_error_that_says_so_and_never_shows_the_key(server: Server, reply: Reply, why: str) -> None:
    reranker = load("rerankers", f"http:{server.url}", api_key="secret")
    server.will(reply, reply)
    began = time.monotonic()
    with pytest.raises(RerankerError, match=why) as raised:
        reranker.score("q", ["a", "b"], deadline=0.7)
    assert time.monotonic() - began < 2
    assert "secret" not in str(raised.value)


def test_nobody_listens() -> None:
    with pytest.raises(RerankerError, match="cannot be reached"):
        load("rerankers", "http:http://127.0.0.1:9/rerank").score("q", ["a"])


def test_a_server_without_its_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="named by its address"):
        load("rerankers", "http:localhost")


# --- a language model -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('{"order": [2, 3, 1]}', [1.0, 3.0, 2.0]),
        ('Sure!\n```json\n{"order": [2]}\n```', [2.0, 3.0, 1.0]),
        ("<think>maybe [1]</think>[3, 3, 99, 0, 2]", [1.0, 2.0, 3.0]),
    ],
)
def test_a_language_model_writes_the_order(reply: str, scores: list[float]) -> None:
    llm = FakeLLM([reply])
    assert load("rerankers", "llm", llm=llm).score("q", ["a", "b", "c"]) == scores


@pytest.mark.parametrize("reply", ["", None, "no idea", '{"order": []}', '{"order": [2', "<think>never closed [2]"])
def test_a_language_model_that_writes_none_is_an_error(reply: str | None) -> None:
    with pytest.raises(RerankerError, match="wrote no order"):
        load("rerankers", "llm", llm=FakeLLM([reply])).score("q", ["a", "b", "c"])


def test_a_language_model_has_to_be_there() -> None:
    with pytest.raises(ConfigError, match="needs a language model"):
        load("rerankers", "llm")


def test_the_command_fetches_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    from typer.testing import CliRunner

    from ragdb.cli.main import app

    monkeypatch.setenv("RAGDB_HOME", str(tmp_path))
    server.will(Reply(archive(*WHOLE)))
    result = CliRunner().invoke(app, ["--json", "fetch-model", f"flashrank:{models.DEFAULT_RERANKER}", "--url", server.url])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["fetched"] is True
    assert "was there: " in CliRunner().invoke(app, ["fetch-model"]).stdout


# --- a language model, more closely ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('Passage [3] is weak, [1] is best.\n{"order": [2, 1, 3]}', [2.0, 3.0, 1.0]),
        ("[2] > [1] > [3]", [2.0, 3.0, 1.0]),
        ('{"order": ["2", "1", "3"]}', [2.0, 3.0, 1.0]),
        ('{"order": [2.0, "[1]"]}', [2.0, 3.0, 1.0]),
        ('{"order": [2, true, 1.5, 99, 2]}', [2.0, 3.0, 1.0]),
    ],
)
def test_an_order_is_read_however_it_is_written(reply: str, scores: list[float]) -> None:
    assert load("rerankers", "llm", llm=FakeLLM(reply)).score("q", ["a", "b", "c"]) == scores


@pytest.mark.parametrize("reply", ["[3] is the best", "", "none", '{"order": []}', '{"order": "all"}'])
def test_a_word_about_a_passage_is_no_order(reply: str) -> None:
    with pytest.raises(RerankerError, match="wrote no order"):
        load("rerankers", "llm", llm=FakeLLM(reply)).score("q", ["a", "b", "c"])


def test_more_passages_than_a_window_holds_are_read_in_windows() -> None:
    """Each prompt fits, and the best of forty climbs from the last place to the first."""
    prompts: list[str] = []

    def best_first(messages: Sequence[Message]) -> str:
        prompts.append(messages[0].content)
        listed = re.findall(r"\[(\d+)\] passage (\d+)", messages[0].content)
        return json.dumps({"order": [int(n) for n, _ in sorted(listed, key=lambda found: -int(found[1]))]})

    llm = FakeLLM(best_first, context_window=2000, max_output_tokens=500)
    passages = [f"passage {n} " + "word " * 60 for n in range(40)]
    scores = load("rerankers", "llm", llm=llm).score("q", passages)
    assert max(llm.count_tokens(prompt) for prompt in prompts) <= 1500
    assert scores.index(max(scores)) == 39
    assert len(set(scores)) == 40


def test_a_window_that_holds_no_two_passages_is_an_error_with_the_numbers() -> None:
    llm = FakeLLM("[]", context_window=1200, max_output_tokens=500)
    with pytest.raises(RerankerError, match="1200 tokens does not hold two passages"):
        load("rerankers", "llm", llm=llm).score("q", ["word " * 400, "word " * 400])


# --- a server, more closely -----------------------------------------------------------------------


def test_a_netrc_does_not_take_the_place_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    (tmp_path / "netrc").write_text("default login joe password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.will(cohere({0: 1.0}), cohere({0: 1.0}))
    load("rerankers", f"http:{server.url}", api_key="secret").score("q", ["a"])
    load("rerankers", f"http:{server.url}").score("q", ["a"])
    assert [request.headers.get("authorization") for request in server.requests] == ["Bearer secret", None]


def test_the_first_refusal_tells_what_is_wrong(server: Server) -> None:
    server.will(Reply.error(400, "model is required"), Reply.error(422, "field documents is required"))
    with pytest.raises(RerankerError, match="model is required"):
        load("rerankers", f"http:{server.url}").score("q", ["a"])


@pytest.mark.parametrize("url", ["http://[::1", "http://", "ftp://a", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        load("rerankers", f"http:{url}")


def test_a_class_is_no_reranker() -> None:
    class Mine:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            return []

    with pytest.raises(ConfigError, match=r"is a class; give an object of it, Mine\(\.\.\.\)"):
        resolve("rerankers", Mine)


def test_what_a_saved_tokenizer_cuts_is_counted(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("flashrank", reason="needs the extra rerank")
    from tokenizers import Tokenizer

    cutting = tmp_path / "cutting"
    shutil.copytree(folder, cutting)
    tokenizer = Tokenizer.from_file(str(cutting / "tokenizer.json"))
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(cutting / "tokenizer.json"))
    reranker = load("rerankers", f"flashrank:{cutting}")
    assert reranker.count_tokens("手当" * 100) > 50
    assert reranker.count_tokens("a") < 5
    assert reranker.knows_japanese()


def test_a_score_does_not_depend_on_the_company(flashrank: Any) -> None:
    texts = ["在宅勤務手当は月額五千円です。", "短い", "ルーターの再起動は背面のボタンを十秒間押します。" * 8]
    hits = [Hit(n, f"d{n}", n, "c", f"d{n}", None, (), "active", "", t, 0, len(t), None, {}, 1.0) for n, t in enumerate(texts)]
    together = rerank(Query("手当はいくら"), Ranking.of(hits, "fused"), flashrank, keep=3).value
    for hit in together.hits:
        alone = rerank(Query("手当はいくら"), Ranking.of([hit], "fused"), flashrank, keep=3).value
        assert alone.hits[0].rerank_score == pytest.approx(hit.rerank_score, abs=1e-6)
