# evenbins: every target sets up what it needs. Two commands for a newcomer: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Hundreds of the tests' processes import the package: let the first one keep the compiled modules for the others.
export PYTHONDONTWRITEBYTECODE :=
CORE   := $(shell find cpp -name '*.cpp' -o -name '*.hpp' -o -name '*.cuh') CMakeLists.txt pyproject.toml

.PHONY: help demo lab check test test-long test-repeated test-platforms test-firefox test-gpu bench-gpu odr bench bench-quick targets soak screenshots readme docs pictures gallery lint format stub wheel clean system-packages soak-each soak-fingerprint crash damage fuzz sanitize coverage determinism faults instructions sdist

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
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/show_build.py \
	  $(BIN)/pip install --verbose --no-build-isolation --editable '.[cli,theory]'
	@touch $@

$(VENV)/for-tests: EXTRAS := test benchmarks lint
$(VENV)/for-bench: EXTRAS := benchmarks
$(VENV)/for-docs: EXTRAS := docs
$(VENV)/for-demo: EXTRAS := plot
$(VENV)/for-lab: EXTRAS := lab plot
$(VENV)/for-coverage: EXTRAS := test benchmarks lint coverage
$(VENV)/for-platforms: $(VENV)/made
	$(BIN)/python tools/extras.py platforms > $@.txt
	$(BIN)/pip install --quiet --requirement $@.txt
	@touch $@

$(VENV)/for-tests $(VENV)/for-bench $(VENV)/for-docs $(VENV)/for-demo $(VENV)/for-lab $(VENV)/for-coverage: $(VENV)/installed
	$(BIN)/python tools/extras.py $(EXTRAS) > $@.txt
	$(BIN)/pip install --quiet --requirement $@.txt
	@touch $@

# What some tests need beside Python packages: cmake, the cross compiler and emulator that check the ARM kernel,
# the servers that routers are tried on, the browser that the lab is tried in.
SYSTEM_PACKAGES := cmake g++-aarch64-linux-gnu qemu-user redis-server memcached chromium strace
system-packages: ## installs the system packages that the tests need (Debian, Ubuntu)
	@missing=""; for program in cmake aarch64-linux-gnu-g++ qemu-aarch64 redis-server memcached chromium strace; do \
	  command -v $$program >/dev/null || missing=yes; done; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "make test needs these system packages: $(SYSTEM_PACKAGES)"; exit 2; }; \
	  root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  echo "installing $(SYSTEM_PACKAGES)"; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq $(SYSTEM_PACKAGES) >/dev/null; \
	fi

CHECKS := tests/unit/test_keys.py tests/unit/test_balanced.py tests/unit/test_counting.py tests/unit/test_countmin.py \
  tests/unit/test_tables.py tests/unit/test_chained.py tests/unit/test_rings.py tests/unit/test_golden.py tests/packaging/test_stub.py \
  tests/unit/test_summaries.py tests/unit/test_sharded.py tests/unit/test_paged.py
# Files with tests that are longer in a long run: those of tests/property, and those that read EVENBINS_ROUNDS by
# sizes.py or have examples of hypothesis.
LONG := tests/property tests/unit/test_callers_memory.py tests/unit/test_allocation_failure.py \
  $(shell grep -rl --include='test_*.py' 'from sizes import\|from hypothesis import' tests/cluster tests/packaging tests/statistical tests/unit)
SUITES := filters counting fingerprint removable sketches tables paged rings redis dedup cores cli

# --- what people do --------------------------------------------------------------------------------------
demo: $(VENV)/for-demo ## plans, builds, queries: prediction beside measurement, and a report with figures
	$(BIN)/evenbins demo

lab: $(VENV)/for-lab ## the pages to understand and to decide, in the browser
	$(BIN)/evenbins lab $(ARGS)

# A process of pytest-xdist for each core, and one more (tests/conftest.py): more threads of BLAS would only wait for one another.
check test test-long: export OPENBLAS_NUM_THREADS := 1
check: $(VENV)/for-tests ## an answer within a minute: lint, and the tests of every structure in their shortest form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet --maxfail=5 $(CHECKS)

test: $(VENV)/for-tests system-packages ## all tests
	$(BIN)/python -m pytest $(ARGS)

test-long: $(VENV)/for-tests system-packages ## property tests, calls beside each other, forks, signals and allocation failure at full length; the ARM kernel as shipped
	EVENBINS_ROUNDS=20 EVENBINS_EVERY_ALLOCATION=1 $(BIN)/python -m pytest -o faulthandler_timeout=7200 -m 'long or not long' $(LONG)
	$(BIN)/python -m pytest -o faulthandler_timeout=7200 -m long

test-repeated: $(VENV)/for-tests system-packages ## all tests ten times, until one fails: writes trust/repeated-tests.json (ARGS=--more: goes on with the runs there)
	$(BIN)/python tools/repeat_tests.py $(ARGS)

test-platforms: $(VENV)/for-platforms system-packages ## the core and its self-test for Windows (wine), musl, aarch64 (qemu) and macOS (built only); writes trust/platforms.json
	@command -v wine >/dev/null || { root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  command -v apt-get >/dev/null || { echo "make test-platforms needs wine"; exit 2; }; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq --no-install-recommends wine wine64 >/dev/null; }
	$(BIN)/python tools/test_platforms.py $(ARGS)
	@[ -n "$(ARGS)" ] || $(MAKE) test-firefox

# Playwright 1.65 sends Firefox a command that Debian's does not know.
test-firefox: $(VENV)/for-tests system-packages ## the lab's pages in Debian's Firefox; part of test-platforms
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || { root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  command -v apt-get >/dev/null || { echo "make test-firefox needs firefox"; exit 2; }; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq --no-install-recommends firefox-esr >/dev/null; }
	$(BIN)/pip install --quiet --upgrade --target $(CURDIR)/build/playwright 'playwright<1.65'
	PYTHONPATH=$(CURDIR)/build/playwright EVENBINS_BROWSER=firefox $(BIN)/python -m pytest -n 1 tests/lab --ignore=tests/lab/test_lab_api.py $(ARGS)

test-gpu: ## what needs a GPU: the same bytes as on the CPU, races, memory; uses the CuPy, PyTorch and JAX of $(PYTHON), and no network
	$(PYTHON) tools/gpu_tests.py $(ARGS)

bench-gpu: ## the acceptance table of evenbins.cuda, on a machine with a GPU; after test-gpu, which builds the core
	PYTHONPATH=build/gpu-package:. $(PYTHON) -m benchmarks.gpu $(ARGS)

odr: $(VENV)/for-tests ## looks for names with two definitions: both extensions linked with -flto -Wodr
	$(BIN)/python tools/check_odr.py $(ARGS)

bench: $(VENV)/for-bench ## the benchmarks with peers; writes benchmarks/results/<date>-<suite>.json
	for suite in $(SUITES); do $(BIN)/python -m benchmarks $$suite || exit; done

targets: $(VENV)/installed ## plan against measurement for every balanced policy, ten million keys
	$(BIN)/python tools/check_targets.py $(ARGS)

sanitize: $(VENV)/for-tests ## the core and the bindings under ASan, UBSan, LSan and TSan (ARGS=thread: one build)
	$(BIN)/python tools/sanitize.py $(ARGS)

coverage: $(VENV)/for-coverage system-packages ## lines run by the tests: Python at least 95 %, the C++ core 90 %
	$(BIN)/python tools/measure_coverage.py $(ARGS)

instructions: $(VENV)/installed ## instructions of key paths against benchmarks/instructions.json, +-3 %: no clock (ARGS=--write: new counts)
	@command -v valgrind >/dev/null || { root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  command -v apt-get >/dev/null || { echo "make instructions needs valgrind"; exit 2; }; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq valgrind >/dev/null; }
	$(BIN)/python tools/instructions.py $(ARGS)

determinism: $(VENV)/for-tests ## the same bytes from every kernel, number of threads, batch size and Python found
	$(BIN)/python tools/determinism.py $(ARGS)

soak: $(VENV)/for-tests system-packages ## every structure against an exact oracle: 10^9 operations in memory, 10^7 on disk, 10^6 over the network; writes soak/<date>.json; then test-long
	$(BIN)/python tools/soak_all.py $(ARGS)
	$(MAKE) test-long

soak-each: $(VENV)/for-tests ## a billion queries of balanced filters, 20 million replacements in a table, 10^8 operations on rings over threads, a million adds to Redis with a kill
	$(BIN)/python tools/soak.py
	$(BIN)/python tools/soak_tables.py
	$(BIN)/python tools/soak_rings.py
	$(BIN)/python tools/soak_redis.py

soak-fingerprint: $(VENV)/for-tests ## 10^8 operations on a fingerprint filter for every kernel and some numbers of threads; its law on 20 filters of 10^7 keys
	$(BIN)/python tools/soak_fingerprint.py churn
	$(BIN)/python tools/soak_fingerprint.py law

damage: $(VENV)/installed ## every bit of a one-read table, its journal and its summary flipped: none taken for whole
	$(BIN)/python tools/damage_pages.py $(ARGS)

crash: $(VENV)/for-tests ## SIGKILL in 2,000 saves of every kind of file and in 2,000 writes of the one-read table: nothing lost
	$(BIN)/python tools/kill_writes.py $(ARGS)

fuzz: $(VENV)/installed ## coverage-guided fuzzing of all that reads files, keys and requests (ARGS='--seconds 60': each target for a minute)
	@command -v clang++ >/dev/null || { root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
	  command -v apt-get >/dev/null || { echo "make fuzz needs clang++ with its sanitizers"; exit 2; }; \
	  $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq clang >/dev/null; }
	$(BIN)/python tools/extras.py fuzz > $(VENV)/for-fuzz.txt && $(BIN)/pip install --quiet --requirement $(VENV)/for-fuzz.txt
	$(BIN)/python tools/fuzz.py $(ARGS)

faults: $(VENV)/for-tests system-packages ## thousands of connections to servers cut at random bytes: no wrong answer, nothing lost (ten minutes)
	$(BIN)/python tools/fault_study.py $(ARGS)

screenshots: $(VENV)/for-tests system-packages ## pictures of the lab's pages, in screenshots/ (ARGS=--keep: those of the documentation too)
	$(BIN)/python tools/screenshots.py $(ARGS)

readme: $(VENV)/installed ## puts six numbers of the newest benchmarks into README.md
	$(BIN)/python tools/write_readme.py

bench-quick: $(VENV)/for-bench
	for suite in $(SUITES); do $(BIN)/python -m benchmarks $$suite --quick || exit; done

docs: $(VENV)/for-docs ## the documentation, in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -E -b html docs docs/_build/html  # -E: a partial build loses entries of the search
	$(BIN)/python tools/search_docs.py

pictures: $(VENV)/installed ## draws docs/images/*.svg anew
	$(BIN)/python tools/draw_pictures.py $(ARGS)

gallery: $(VENV)/installed ## runs the papers' experiments and writes docs/gallery (an hour of one core; ARGS='chen-table6' for one)
	$(BIN)/python tools/make_gallery.py $(ARGS)

lint: $(VENV)/for-tests ## ruff, mypy, import-linter, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(filter cpp/%,$(CORE))

format: $(VENV)/for-tests ## formats Python and C++
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(filter cpp/%,$(CORE))

stub: $(VENV)/for-tests ## writes src/evenbins/_core.pyi and _study.pyi anew
	$(BIN)/python tools/make_stub.py

wheel: $(VENV)/made ## builds a wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

sdist: $(VENV)/made ## builds the source distribution into dist/
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'

clean: ## removes everything that was built
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
