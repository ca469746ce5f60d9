# `make help` lists the commands. All of them install the packages first, except `make gpu-check` with a bundle.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
PORT ?= 3000
PAGES ?= 8001
MINUTES ?= 60
# The tests of `make check`: all that need no CUDA device and are not nightly.
TIER ?= not gpu and not nightly
# One worker runs all tests of a file, so module fixtures are made once; slow files start first. Each worker has one thread:
# with more, the workers compete for the cores, and tests of tiny models take several times as long.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
# `make check DURATIONS=mens_pipeline_tests/durations.tsv` updates the committed table of durations.
TIMED = $(PYTEST) $(if $(DURATIONS),--durations-table $(DURATIONS))
# The tests of `make quick`: language and storage, except tests that need an engine or a server.
QUICK := $(addprefix mens_pipeline_tests/,language storage) $(addprefix --ignore=mens_pipeline_tests/, \
	language/test_grammar_export.py storage/test_remote.py storage/test_remote_documents.py \
	storage/test_signing.py)
GPU_PARTS := smoke training bench serving tests generation
# A GPU machine without a network uses its own Python with the packages of the bundle.
GPU_PYTHON = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DAGSTER_DISABLE_TELEMETRY := 1
# The tests start hundreds of processes. They start faster with compiled modules, which some systems disable.
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

test: install  ## Run the tests that take at most two seconds each.
	$(PYTEST) -m "not slow and not nightly and not e2e and not gpu and not postgres"

quick: install  ## Run unit tests without deep learning, in a minute; `make quick EXTRAS=quick` does not install it.
	$(PYTEST) -p mens_pipeline_tests.without_torch -m "not slow and not nightly and not e2e" $(QUICK)

check: install  ## Check format, lint, types, layers and definitions, and run all tests except nightly ones: 20 to 30 minutes on two cores.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/dg check defs
	$(TIMED) --cov -m "measured and ($(TIER))" $(addprefix mens_pipeline_tests/,storage language corpus security)
	$(TIMED) -m "not measured and ($(TIER))"

check-all: TIER := not gpu
check-all: check  ## `make check` with nightly tests; for each night and before a release.

format: install  ## Format the code and apply the fixes of ruff.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: install  ## Complete five prompts and five lines with the included adapter.
	$(BIN)/mens demo

run: install  ## Run the whole graph once, without a server.
	$(BIN)/mens run

ui: install $(DAGSTER_HOME)/dagster.yaml  ## Open the Dagster UI on http://localhost:3000 (PORT=3000).
	$(BIN)/mens store pages --port $(PAGES) -- $(BIN)/python -m mens_pipeline.orchestration.web_server dev -w workspace.yaml --port $(PORT)

$(DAGSTER_HOME)/dagster.yaml:
	@mkdir -p $(DAGSTER_HOME)
	@ln -sfn $(CURDIR)/dagster.yaml $@

bench: install  ## Measure speed, also of the corpus of SOURCE=DIR, and of training and generation with build/; CHECK=1 compares with the record.
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

gpu-bundle: install  ## Pack build/gpu-bundle.tar for a GPU machine without a network; GPU_MACHINE="--python 3.11 --cuda 128".
	$(BIN)/mens run --no-train
	$(BIN)/python -m mens_pipeline_tests.gpu.bundle $(GPU_MACHINE)

# Check the arguments before minutes of packing.
ifneq ($(filter gpu-check,$(MAKECMDGOALS)),)
$(if $(filter-out $(GPU_PARTS),$(PART)),$(error PART=$(PART): choose from $(GPU_PARTS)))
$(if $(filter-out cuda cpu,$(DEVICE)),$(error DEVICE=$(DEVICE): choose from cuda cpu))
endif

gpu-check: $(if $(wildcard build/gpu-bundle),,gpu-bundle)  ## Run all checks on a GPU in eight minutes and write one page; PART="smoke training"; GPU_OPTIONS="--layers 32 --seconds 1800".
	$(GPU_PYTHON) -m mens_pipeline_tests.gpu.check $(PART) $(if $(DEVICE),--device $(DEVICE)) $(GPU_OPTIONS)

soak: install  ## Kill processes, fill disks and send noise for MINUTES=60; writes docs/reliability.md.
	OMP_NUM_THREADS=1 $(BIN)/python -m mens_pipeline_tests.soak --minutes $(MINUTES)

month: install  ## Simulate thirty nights of failures; writes docs/reliability.md and its chart.
	$(BIN)/python -m mens_pipeline_tests.soak.month

docs: install  ## Update docs/reference and build the site in build/site.
	$(BIN)/python -m mens_pipeline_tests.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock:  ## Update constraints.txt from pyproject.toml.
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet torch==2.13.0
	$(VENV)-lock/bin/pip install --quiet hatchling==1.33.0 editables ".[dev,train,serve]"
	@{ echo "# All direct and transitive versions, written by \`make lock\`. Keep torch first: its version decides the build."; \
		echo "# On a machine with CUDA, torch pins its nvidia packages."; \
		echo "torch==2.13.0"; \
		$(VENV)-lock/bin/pip freeze | grep -v -E '^(torch|mens-pipeline)\b' | sed 's/+cpu$$//'; } > constraints.txt
	rm -rf $(VENV)-lock

clean:  ## Remove output of tools, and keep data.
	rm -rf $(VENV) $(VENV)-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
