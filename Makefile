# Everything starts here: `make demo` and `make test` do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEV_STAMP := $(VENV)/.ready-dev
UNFINISHED := $(VENV)/.unfinished
PIP := $(BIN)/python -m pip install --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find native -name '*.[ch]' -o -name CMakeLists.txt)
SANITIZED := build/sanitized
TSAN := build/tsan
ACT ?= all
CORES := $(shell nproc)
ROOM ?=
N ?= 30
SEED ?= 1
# Tests at a time, two more than cores, for many tests wait.
WORKERS := $(shell expr $(CORES) + 2)
# Native tests hardly compute: they wait for what a network, an agent or a peer does in real time.
WAITING := $(shell expr $(CORES) \* 4)
NATIVE_TESTS = $(BIN)/ctest --test-dir $(SANITIZED) --parallel $(WAITING) --output-on-failure -LE costly
# Of `make test`: more, for beside other programs each has its share of the cores.
TESTERS := $(shell expr $(CORES) + 4)
# A file's tests stay together, for they share costly fixtures; files begin in the order of
# tests/conftest.py, the longest first.
PARALLEL ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Demo and tests start hundreds of Python processes; without this each would compile all of syntony.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup dev system demo test test-live test-slow sanitized native-test native-costly native-threads lint bench clean mutate \
  dist deb release site web

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

setup: system $(STAMP) ## Make .venv/bin/syntony; ask for or install what the machine lacks

dev: system $(DEV_STAMP) ## The same, and what tests, lint and benches need

system:
	@sh deploy/system-packages.sh

# The virtual environment with an extra of pyproject.toml. pip compiles on one core only.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "syntony needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test ! -e $(UNFINISHED) || rm -rf $(VENV) # what Ctrl-C left: without pip, or with parts of packages
	@test -x $(BIN)/python || { mkdir -p $(VENV) && touch $(UNFINISHED) && $(PYTHON) -c \
	  'import signal, venv; signal.signal(signal.SIGINT, signal.SIG_DFL); venv.main(["$(VENV)"])'; } || \
	  { echo "cannot make a virtual environment; install python3-venv" >&2; exit 1; }
	@echo "== fetching and building into $(VENV); minutes, once"
	$(PIP) --no-compile -e '.[$(1)]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src >/dev/null 2>&1 || true # some is for other Pythons
	@rm -f $(UNFINISHED)
	@touch $(STAMP) $@
endef

$(STAMP): pyproject.toml $(NATIVE)
	$(call install,lab)

$(DEV_STAMP): pyproject.toml $(NATIVE)
	$(call install,dev)

demo: setup ## The whole story on one machine (ACT=… for some acts; HOLD=1 keeps it up; FETCH_TORCH=1 fetches PyTorch)
	$(BIN)/syntony demo --act $(ACT) $(if $(FETCH_TORCH),--fetch-torch) $(if $(HOLD),--hold)

# The workers fill the cores: threads of OpenBLAS beside them only wait for each other.
test test-live test-slow: export OPENBLAS_NUM_THREADS = 1
test: dev sanitized ## Native and unit tests, each of little work; minutes
	@sh deploy/system-packages.sh --test || echo "tests of deploy/ will be skipped" >&2
	$(BIN)/python -m tests.workers $(TESTERS) --beside '$(NATIVE_TESTS)' -m 'not slow and not lab and not costly'

# Labs one at a time, for they share the cores.
test-live: dev native-threads native-costly ## Costly unit tests (tests/costly.txt), threads' tests, real labs
	$(BIN)/python -m pytest -m 'costly and not slow and not lab' $(PARALLEL)
	$(BIN)/python -m pytest -m 'lab and not slow'

test-slow: dev ## The slow tests: other systems, packages, all drawn cases; hours, as root (CONTRIBUTING.md)
	@sh deploy/system-packages.sh --slow || echo "tests that need these packages will be skipped" >&2
	$(BIN)/python -m pytest -m 'slow and not lab' $(PARALLEL)
	$(BIN)/python -m pytest -m 'slow and lab'

native-test: sanitized ## Native tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(NATIVE_TESTS)

native-costly: sanitized ## Those that cost too much for every run
	$(BIN)/ctest --test-dir $(SANITIZED) --parallel $(WORKERS) --output-on-failure -L costly

sanitized: dev
	@$(BIN)/cmake -S . -B $(SANITIZED) -DSYNTONY_SANITIZE=ON -DSYNTONY_TESTS=ON >/dev/null
	@$(BIN)/cmake --build $(SANITIZED) --parallel $(CORES) >/dev/null

native-threads: dev ## Native tests of what runs in several threads, under ThreadSanitizer
	@$(BIN)/cmake -S . -B $(TSAN) -DSYNTONY_TSAN=ON -DSYNTONY_TESTS=ON >/dev/null
	@$(BIN)/cmake --build $(TSAN) --parallel $(CORES) --target nccl_tests verbs_tests nccl_profiler_tests >/dev/null
	$(BIN)/ctest --test-dir $(TSAN) --parallel --output-on-failure -R '^(nccl_(gpu|neighbours|peers|strangers|stuck|devices|hostile|foreign|orders|agents)|nccl_net_(v|random|narrow|healthy)|nccl_programs_[0-9]|nccl_profiler_(random|threads)|verbs_(fake|probe_(pairs|classes|gone|strangers|churn|clock_(truth|jump))))'

lint: dev ## Format, lint, types, walls between rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: dev ## Every number in the docs, printed again on this machine
	@for bench in $(basename $(notdir $(wildcard bench/*.py))); do \
	  echo "== $$bench"; $(BIN)/python -m bench.$$bench || exit 1; done

dist: dev ## Sdist and wheel in dist/; the wheel for CPython 3.11 and later, with a manylinux tag
	$(PIP) -q -e '.[release]'
	@sh deploy/packages/wheel.sh dist

deb: dist ## Debian packages of it in dist/, for the Debian that this runs on
	@sh deploy/packages/build-deb.sh dist/*_$$(uname -m).whl dist

release: dev ## All that a release has in dist/: packages of each suite, SBOM, notes, checksums (root)
	$(PIP) -q -e '.[release]'
	@sh deploy/packages/release.sh

site: dev ## The documentation as a site in build/site, with search and the API
	$(PIP) -q -e '.[site]'
	$(BIN)/mkdocs build --strict

web: ## Build the console into src/syntony/api/console and run its tests; needs Node 20 or newer
	@command -v npm >/dev/null || { echo "make web needs Node 20 or newer with npm" >&2; exit 1; }
	cd web && npm ci && npx tsc --noEmit && npx vite build && npx vitest run

clean: ## Remove everything made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

mutate: dev ## What the tests of pure rooms notice of deliberate changes (ROOM=… N=… SEED=…)
	$(BIN)/python -m tests.mutate $(ROOM) --sample $(N) --seed $(SEED) --json build/mutate.json
