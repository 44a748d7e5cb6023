# evenbins: every target sets up what it needs. Two commands for a newcomer: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(shell find cpp -name '*.cpp' -o -name '*.hpp') CMakeLists.txt pyproject.toml

.PHONY: help demo test bench bench-quick targets soak faults screenshots readme docs pictures gallery lint format stub wheel clean system-packages

help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

# --- set-up: a virtual environment, the package built into it, one stamp for each set of extras ---------
$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit("evenbins needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  { echo "evenbins needs a C++20 compiler: apt-get install g++ (Debian, Ubuntu) or xcode-select --install (macOS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/python tools/extras.py build-system > $@.txt
	$(BIN)/pip install --quiet --requirement $@.txt
	@touch $@

$(VENV)/installed: $(VENV)/made $(CORE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/for-tests: EXTRAS := test bench lint
$(VENV)/for-bench: EXTRAS := bench
$(VENV)/for-docs: EXTRAS := docs
$(VENV)/for-demo: EXTRAS := plot
$(VENV)/for-tests $(VENV)/for-bench $(VENV)/for-docs $(VENV)/for-demo: $(VENV)/installed
	$(BIN)/python tools/extras.py $(EXTRAS) > $@.txt
	$(BIN)/pip install --quiet --requirement $@.txt
	@touch $@

# What some tests need beside Python packages: cmake, the cross compiler and emulator that check the ARM kernel,
# the servers that routers are tried on, the browser that the lab is tried in.
SYSTEM_PACKAGES := cmake g++-aarch64-linux-gnu qemu-user redis-server memcached chromium
system-packages: ## installs the system packages that the tests need (Debian, Ubuntu)
	@missing=""; for program in cmake aarch64-linux-gnu-g++ qemu-aarch64 redis-server memcached chromium; do \
	  command -v $$program >/dev/null || missing=yes; done; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "make test needs these system packages: $(SYSTEM_PACKAGES)"; exit 2; }; \
	  root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  echo "installing $(SYSTEM_PACKAGES)"; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq $(SYSTEM_PACKAGES) >/dev/null; \
	fi

SUITES := filters counting sketches tables paged rings redis cli

# --- what people do --------------------------------------------------------------------------------------
demo: $(VENV)/for-demo ## plans, builds, queries: prediction beside measurement, and a report with figures
	$(BIN)/evenbins demo

test: $(VENV)/for-tests system-packages ## all tests
	$(BIN)/python -m pytest $(ARGS)

bench: $(VENV)/for-bench ## the benchmarks with peers; writes benchmarks/results/<date>-<suite>.json
	for suite in $(SUITES); do $(BIN)/evenbins bench $$suite || exit; done

targets: $(VENV)/installed ## plan against measurement for every balanced policy, ten million keys
	$(BIN)/python tools/check_targets.py $(ARGS)

soak: $(VENV)/installed ## a billion queries, 20 million replacements in a table, 10^8 operations on rings, a million adds to Redis: nothing lost, no bound broken
	$(BIN)/python tools/soak.py $(ARGS)
	$(BIN)/python tools/soak_tables.py
	$(BIN)/python tools/soak_rings.py
	$(BIN)/python -m pip install --quiet redis && $(BIN)/python tools/soak_redis.py

faults: $(VENV)/for-tests system-packages ## thousands of connections to servers cut at random bytes: no wrong answer, nothing lost (ten minutes)
	$(BIN)/python tools/fault_study.py $(ARGS)

screenshots: $(VENV)/for-tests system-packages ## pictures of the lab's pages, in screenshots/ (ARGS=--keep: those of the documentation too)
	$(BIN)/python tools/screenshots.py $(ARGS)

readme: $(VENV)/installed ## puts the newest benchmark's table into README.md
	$(BIN)/python tools/write_readme.py

bench-quick: $(VENV)/for-bench
	for suite in $(SUITES); do $(BIN)/evenbins bench $$suite --quick || exit; done

docs: $(VENV)/for-docs ## the documentation, in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

pictures: $(VENV)/installed ## draws docs/images/*.svg anew
	$(BIN)/python tools/draw_pictures.py $(ARGS)

gallery: $(VENV)/installed ## runs the papers' experiments and writes docs/gallery (an hour of one core; ARGS='chen-table6' for one)
	$(BIN)/python tools/make_gallery.py $(ARGS)

lint: $(VENV)/for-tests ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(filter cpp/%,$(CORE))

format: $(VENV)/for-tests ## formats Python and C++
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(filter cpp/%,$(CORE))

stub: $(VENV)/for-tests ## writes src/evenbins/_core.pyi anew
	$(BIN)/python tools/make_stub.py

wheel: $(VENV)/made ## builds a wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## removes everything that was built
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
