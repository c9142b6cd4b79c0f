"""What tests of programs that use ragdb need: models that answer at once, the same every time, and fail when told to."""

from __future__ import annotations

from ragdb.testing import odd
from ragdb.testing.draining import drain
from ragdb.testing.fakes import FakeEmbedder, FakeLLM, LLMCall
from ragdb.testing.server import FakeOpenAIServer, Reply

__all__ = ["FakeEmbedder", "FakeLLM", "FakeOpenAIServer", "LLMCall", "Reply", "drain", "odd"]
