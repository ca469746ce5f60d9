# One command each: `make demo`, `make test`, `make quick`, `make check`, `make check-all`, `make run`, `make ui`, `make bench`,
# `make soak`, `make month`, `make docs`. All of them install first. `make gpu-check` does not have to.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
PORT ?= 3000
PAGES ?= 8001
MINUTES ?= 60
# Which tests `make check` runs: all but those that need a CUDA device, and those for the night.
TIER ?= not gpu and not nightly
# A file is one worker's, and with it what its module makes once; the slowest file that is left is next. Workers that compute
# with all cores each wait for one another: tests of models of two layers take several times as long.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
# `make check DURATIONS=mens_pipeline_tests/durations.tsv` writes the committed table of how long test files take.
TIMED = $(PYTEST) $(if $(DURATIONS),--durations-table $(DURATIONS))
# What `make quick` looks at: the language with its interpreter, and the store; without what needs an engine or a server.
QUICK := $(addprefix mens_pipeline_tests/,language storage) $(addprefix --ignore=mens_pipeline_tests/, \
	language/test_grammar_export.py storage/test_remote.py storage/test_remote_documents.py \
	storage/test_signing.py)
GPU_PARTS := smoke training bench serving tests generation
# A machine that reaches nothing has its own Python beside what the bundle brings.
GPU_PYTHON = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DAGSTER_DISABLE_TELEMETRY := 1
# Hundreds of processes start in a run of the tests: each reads our modules compiled, wherever this is switched off.
export PYTHONDONTWRITEBYTECODE :=
export DAGSTER_HOME ?= $(CURDIR)/data/dagster

.DEFAULT_GOAL := help
.PHONY: help install test quick check check-all format demo run ui bench gpu-bundle gpu-check soak month docs lock clean

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

install: $(VENV)/.installed-$(EXTRAS)  ## Create .venv and install the pinned packages.

$(VENV)/.installed-$(EXTRAS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11. Name a newer one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
		{ echo "$(PYTHON) cannot make virtual environments. On Debian: apt install python3-venv" >&2; exit 1; }
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable ".[$(EXTRAS)]"
	@touch $@

test: install  ## Run the default tier of the tests.
	$(PYTEST) -m "not slow and not nightly and not e2e and not gpu and not postgres"

quick: install  ## Unit tests in a minute, without deep learning; `make quick EXTRAS=quick` installs none.
	$(PYTEST) -p mens_pipeline_tests.without_torch -m "not slow and not nightly and not e2e" $(QUICK)

check: install  ## Format, lint, types, layers, definitions, and all tests but the nightly ones: a quarter of an hour on two cores.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/dg check defs
	$(TIMED) --cov -m "measured and ($(TIER))" $(addprefix mens_pipeline_tests/,storage language corpus security)
	$(TIMED) -m "not measured and ($(TIER))"

check-all: TIER := not gpu
check-all: check  ## `make check` with the nightly tests as well: every night, and before a release.

format: install  ## Format the code and mend what ruff can.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: install  ## Complete five prompts and five lines with the adapter that comes with the code.
	$(BIN)/mens demo

run: install  ## Run the whole graph once, without a server.
	$(BIN)/mens run

ui: install $(DAGSTER_HOME)/dagster.yaml  ## Open the Dagster UI on http://localhost:3000 (PORT=3000).
	$(BIN)/mens store pages --port $(PAGES) -- $(BIN)/python -m mens_pipeline.orchestration.web_server dev -w workspace.yaml --port $(PORT)

$(DAGSTER_HOME)/dagster.yaml:
	@mkdir -p $(DAGSTER_HOME)
	@ln -sfn $(CURDIR)/dagster.yaml $@

bench: install  ## Measure front end, interpreter, tokenizer, grammar, corpus (also SOURCE=DIR), scale, training and generation on build; CHECK=1: compare.
	$(BIN)/python -m mens_pipeline_tests.bench.front_end
	$(BIN)/python -m mens_pipeline_tests.bench.interpreter
	$(BIN)/python -m mens_pipeline_tests.bench.vox_tokenizer
	$(BIN)/python -m mens_pipeline_tests.bench.grammar
	$(BIN)/python -m mens_pipeline_tests.bench.corpus $(SOURCE)
	$(BIN)/python -m mens_pipeline_tests.bench.scale --share 0.1
	@test -f build/train.jsonl || echo "No build/train.jsonl: training is not measured. See docs/data.md."
	@test ! -f build/train.jsonl || $(BIN)/python -m mens_pipeline_tests.bench.training build/train.jsonl --steps 8 $(if $(BASE),--base $(BASE)) $(if $(DEVICE),--device $(DEVICE))
	@test ! -f build/heldout.jsonl || $(BIN)/python -m mens_pipeline_tests.bench.generation build/heldout.jsonl $(if $(RUN),--run $(RUN)) $(if $(DEVICE),--device $(DEVICE))
	@test -z "$(CHECK)" || $(BIN)/python -m mens_pipeline_tests.bench.ratios

gpu-bundle: install  ## Pack what a GPU machine that reaches nothing lacks into build/gpu-bundle.tar; GPU_MACHINE="--python 3.11 --cuda 128".
	$(BIN)/mens run --no-train
	$(BIN)/python -m mens_pipeline_tests.gpu.bundle $(GPU_MACHINE)

# Before a bundle is packed for minutes.
ifneq ($(filter gpu-check,$(MAKECMDGOALS)),)
$(if $(filter-out $(GPU_PARTS),$(PART)),$(error PART=$(PART): choose of $(GPU_PARTS)))
$(if $(filter-out cuda cpu,$(DEVICE)),$(error DEVICE=$(DEVICE): choose of cuda cpu))
endif

gpu-check: $(if $(wildcard build/gpu-bundle),,gpu-bundle)  ## Ask a GPU everything in eight minutes, on one page; PART="smoke training"; GPU_OPTIONS="--layers 32 --seconds 1800".
	$(GPU_PYTHON) -m mens_pipeline_tests.gpu.check $(PART) $(if $(DEVICE),--device $(DEVICE)) $(GPU_OPTIONS)

soak: install  ## Kill, fill disks, and send noise for MINUTES=60, and write docs/reliability.md.
	OMP_NUM_THREADS=1 $(BIN)/python -m mens_pipeline_tests.soak --minutes $(MINUTES)

month: install  ## Pass thirty nights of everything that goes wrong, and write docs/reliability.md and its chart.
	$(BIN)/python -m mens_pipeline_tests.soak.month

docs: install  ## Write the pages of docs/reference again, and build the site into build/site.
	$(BIN)/python -m mens_pipeline_tests.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock:  ## Write constraints.txt again from what pyproject.toml asks for.
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet torch==2.13.0
	$(VENV)-lock/bin/pip install --quiet hatchling==1.33.0 editables ".[dev,train,serve]"
	@{ echo "# Every direct and transitive version, by \`make lock\`. torch stands first: another pin takes another build."; \
		echo "# On a machine with CUDA, torch pins its nvidia packages itself."; \
		echo "torch==2.13.0"; \
		$(VENV)-lock/bin/pip freeze | grep -v -E '^(torch|mens-pipeline)\b' | sed 's/+cpu$$//'; } > constraints.txt
	rm -rf $(VENV)-lock

clean:  ## Remove what the tools made; data stays.
	rm -rf $(VENV) $(VENV)-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
