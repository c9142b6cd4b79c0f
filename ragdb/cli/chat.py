"""chat: a conversation in the terminal. Its turns are stored runs, so it can be gone on with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from ragdb.cli.output import bold, dim, json_line, note, say
from ragdb.cli.questions import PipelineName, Where
from ragdb.cli.state import State, json_object, pipeline_named, verb

if TYPE_CHECKING:
    from ragdb.rag import RagDB
    from ragdb.types import Answer


def chat(
    state: State,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Chunks to answer from.")] = 6,
    where: Where = None,
    pipeline: PipelineName = None,
    llm: Annotated[str | None, typer.Option(metavar="NAME", help="The language model (RAGDB_LLM).")] = None,
    conversation: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this one; a new one without.", show_default=False)
    ] = None,
) -> None:
    """Ask one question after the other; each knows what was said.

    An empty line, or Ctrl-D, ends it. From a pipe every line that is not blank is a question.
    """
    filters, preset = json_object(where, "--where"), pipeline_named(pipeline)
    name = conversation or uuid4().hex[:12]
    with state.rag(llm=llm) as rag:
        note(f"conversation {name}" + ("; an empty line ends it" if sys.stdin.isatty() else ""))
        while question := _question():
            answer = _answered(rag, question, state, k=k, where=filters, pipeline=preset, conversation=name)
            if state.json:
                json_line(answer.to_dict())
    if sys.stdin.isatty():
        note(f"to go on: {state.command(f'chat --conversation {name}')}")


def _question() -> str:
    if sys.stdin.isatty():
        try:
            return input(bold("? ")).strip()
        except EOFError:
            return ""
    return next((line.strip() for line in sys.stdin if line.strip()), "")


def _answered(rag: RagDB, question: str, state: State, **how: object) -> Answer:
    stream = rag.stream(question, **how)  # type: ignore[arg-type]
    with stream:
        for part in stream:
            if not state.json:
                sys.stdout.write("\n" if part.replaces else str(part))
                sys.stdout.flush()
    answer = stream.answer
    assert answer is not None
    if not state.json:
        say("")
        if answer.sources:
            say(dim(answer.sources))
        if answer.error:
            note(f"error: {answer.error}")
        say("")
    return answer


def register(app: typer.Typer) -> None:
    verb(app)(chat)
