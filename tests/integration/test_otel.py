"""Spans of OpenTelemetry, where it is installed: one a run, one a stage, and no texts in them."""

from __future__ import annotations

import pytest

from ragdb import Document, RagDB
from ragdb.runs import otel
from ragdb.testing import FakeEmbedder, FakeLLM


def test_a_run_is_a_span_with_its_stages_inside(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    otel._api.cache_clear()
    with (
        RagDB(ragdb_url, collection="help", embedder=FakeEmbedder(), llm=FakeLLM("Hold it [1].")) as rag,
        provider.get_tracer("app").start_as_current_span("request") as request,
    ):
        rag.add(Document("d", "Reset the secretrouter with a pin."))
        answer = rag.ask("How do I reset the secretrouter?")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    whole = spans["ragdb.ask"]
    assert whole.parent is not None
    assert whole.parent.span_id == request.get_span_context().span_id
    assert whole.attributes is not None
    assert whole.attributes["ragdb.outcome"] == "answered"
    assert {"ragdb.retrieve lexical", "ragdb.retrieve semantic", "ragdb.fuse", "ragdb.pack"} <= spans.keys()
    children = [span for span in spans.values() if span.parent and whole.context and span.parent.span_id == whole.context.span_id]
    assert len(children) == len(answer.stages)
    assert all(whole.start_time <= span.start_time <= span.end_time for span in children)  # type: ignore[operator]
    assert "secretrouter" not in "".join(span.to_json() for span in spans.values())


def test_without_the_package_nothing_happens(ragdb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "_api", lambda: None)
    with RagDB(ragdb_url, collection="help", embedder=FakeEmbedder()) as rag:
        rag.add(Document("d", "Reset the router with a pin."))
        assert rag.ask("How do I reset the router?").run_id is not None
