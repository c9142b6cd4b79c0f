"""Evaluation: which stage lost the answer, which configuration is better, and no to a worse one.

    sets.make(rag, "help"); sets.put_questions(rag, "help", importing.read_rows("golden.jsonl").questions)
    before, after = run(rag, "help", [presets.naive, presets.hybrid])
    compare(sets.read(rag, "help"), before, after).differences

The command line has the same as `ragdb eval`; docs/evaluation.md tells what each figure means.
"""

from __future__ import annotations

from ragdb.evaluate import exporting, importing, runs, sets
from ragdb.evaluate.comparing import Comparison, compare, means
from ragdb.evaluate.gating import Gate, gate
from ragdb.evaluate.how import How
from ragdb.evaluate.running import run
from ragdb.evaluate.sweeping import sweep
from ragdb.evaluate.types import Difference, EvalQuestion, EvalRun, EvalSet, Judgement, Mean, Result, Step, Verdict

__all__ = [
    "Comparison",
    "Difference",
    "EvalQuestion",
    "EvalRun",
    "EvalSet",
    "Gate",
    "How",
    "Judgement",
    "Mean",
    "Result",
    "Step",
    "Verdict",
    "compare",
    "exporting",
    "gate",
    "importing",
    "means",
    "run",
    "runs",
    "sets",
    "sweep",
]
