.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

UV_VERSION := 0.13.8
BIN := .venv/bin
STAMP := .tidemark/setup.stamp
CLASSES := .tidemark/classes.stamp
DIR ?= ../shared/oracle
SUITABLE := import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit(1); print(sys.executable)
SOAK_MINUTES ?= 30
SOAK_RATE ?= 5000
LONG := oracle_all or soak
JVM := spark or cluster or kafka
# Three processes for two cores, each with a session in one JVM: planning a small step uses one core only, and commits wait for the disk.
# Tests without Spark wait too, so three processes are faster than two for them.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=1

# uv uses this folder's .venv, whatever environment is active, and downloads no Python.
export UV_PROJECT_ENVIRONMENT := .venv
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV
# Each process imports some 7,000 modules; compiling them without cached byte code takes 7 s.
unexport PYTHONDONTWRITEBYTECODE

# Installs the locked packages, and those of a dependency group: $(SYNC) --group NAME. `uv sync --frozen` downloads from the addresses in uv.lock,
# whatever index is set. So packages from a mirror are installed before it, by their hashes.
SYNC = sync() { \
	  if [ -n "$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-}}" ]; then \
	    "$$uv" export --frozen --quiet --no-emit-project "$$@" --output-file .tidemark/requirements.txt && \
	    "$$uv" pip install --python $(BIN)/python --require-hashes --requirement .tidemark/requirements.txt || return 1; \
	  fi; \
	  "$$uv" sync --frozen $${1:+--quiet --inexact} "$$@"; \
	}; sync

.PHONY: help setup setup-kafka setup-broker setup-s3 kafka-up demo demo-kafka test test-fast test-operators test-soak lint audit format hunt oracle bench bench-windows bench-top bench-cycle bench-growth bench-latency bench-setup soak docs docs-serve docs-setup chaos ui clean FORCE

help: ## list the tasks
	@grep -hE '^[a-z0-9-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(STAMP) ## install uv, .venv from uv.lock, the JARs of Spark and its class archive; quick if nothing has changed
	@$(BIN)/python -m platform_defs.setup.jars
	@[ $(CLASSES) -nt $(STAMP) ] || { $(BIN)/python -m platform_defs.spark.archive_classes 2>/dev/null || true; touch $(CLASSES); }

setup-kafka: setup ## fetch the JARs of Kafka's connector and of Avro
	@$(BIN)/python -m platform_defs.setup.jars kafka

setup-broker: setup ## fetch the JARs of a local Kafka broker
	@$(BIN)/python -m platform_defs.setup.jars broker

setup-s3: setup ## fetch the JARs of Hadoop's S3 file system (10 MB), and compile the log store
	@$(BIN)/python -m platform_defs.setup.jars s3
	@$(BIN)/python -m platform_defs.setup.log_store

$(STAMP): pyproject.toml uv.lock $(if $(wildcard $(BIN)/python),,FORCE)
	@set -e; mkdir -p $(@D); uv=$$(command -v uv || true); \
	if [ ! -x $(BIN)/python ] || [ -z "$$uv" ]; then \
	  for name in python3.12 python3.13 python3.11 python3 python; do \
	    python=$$($$name -c '$(SUITABLE)' 2>/dev/null) && break; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "tidemark needs Python 3.11, 3.12 or 3.13, and none is on PATH. Install one:" >&2; \
	    echo "  Debian, Ubuntu:  sudo apt-get install python3 python3-venv" >&2; \
	    echo "  macOS:           brew install python@3.12" >&2; \
	    exit 1; \
	  fi; \
	fi; \
	if [ -z "$$uv" ]; then \
	  uv=.tidemark/uv/bin/uv; \
	  if [ "$$($$uv --version 2>/dev/null | cut -d' ' -f2)" != "$(UV_VERSION)" ]; then \
	    echo "setup: uv $(UV_VERSION) into .tidemark/uv"; \
	    "$$python" -m venv --clear .tidemark/uv; \
	    .tidemark/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"; \
	  fi; \
	fi; \
	[ -x $(BIN)/python ] || "$$uv" venv --quiet --clear --python "$$python" .venv; \
	$(SYNC); \
	touch $@

demo: setup ## run the demo: simulate a shop, ingest, build every table (ARGS=... for options)
	$(BIN)/tidemark demo $(ARGS)

demo-kafka: setup-kafka setup-broker ## run the demo through a Kafka broker on this machine (ARGS="ORDERS PARTS")
	$(BIN)/python -m platform_defs.cli.demo_kafka $(ARGS)

test: setup-kafka setup-broker setup-s3 ## run all tests except the long ones (ARGS=... goes to pytest)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not ($(LONG))" $(ARGS)

# Collecting folders whose tests all start a broker or a cluster takes a second in each process.
test-fast: setup-s3 ## run the tests that start no Spark, cluster or broker, with fewer random examples
	TESTS_FEW_EXAMPLES=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not ($(JVM)) and not ($(LONG))" \
	  --ignore=tests/kafka --ignore=tests/cluster $(ARGS)

test-operators: setup ## run the operators' tests that need Spark
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "spark and not ($(LONG))" tests/operators $(ARGS)

test-soak: setup-kafka setup-broker ## run the tests with the mark `soak`, which `make test` leaves out (ARGS=... goes to pytest)
	$(BIN)/python -m pytest -m soak $(ARGS)

lint: setup ## check style, format, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py

audit: setup ## find known vulnerabilities in the locked dependencies; passes without a network
	$(BIN)/python .ci/audit.py $(ARGS)

format: setup ## format the code and apply ruff's fixes
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

chaos: setup ## kill a stream 300 times, compare it with an undisturbed run, write docs/explanation/reliability.md (ARGS="--kills N": below 300 it only prints the table)
	$(BIN)/python -m tests.chaos $(ARGS)

hunt: setup ## run random histories on an in-memory store, print every difference from a model (ARGS="--seed N --seconds S --histories N --jobs N")
	@$(BIN)/python -m tests.hunt $(ARGS)

oracle: setup ## compare with all of Flink's recorded answers (DIR=../shared/oracle), and with its rows of SQL statements
	$(BIN)/python -m tests.oracle $(DIR)
	$(BIN)/python -m pytest -m oracle_all tests/oracle/test_sql.py tests/operators/sql

bench: bench-setup ## compare the payment-order join with Flink, Spark and DuckDB, write docs/explanation/benchmarks.md (ARGS="--flink DIR")
	@status=0; $(BIN)/python -m benchmarks join $(ARGS) || status=$$?; $(BIN)/python -m benchmarks report; exit $$status

bench-windows: bench-setup ## compare hot items with Flink, Spark and DuckDB, write docs/explanation/benchmarks.md (ARGS="--flink DIR")
	@status=0; $(BIN)/python -m benchmarks hot-items $(ARGS) || status=$$?; $(BIN)/python -m benchmarks report; exit $$status

bench-top: bench-setup ## compare the top bids of each auction with Flink and DuckDB, write docs/explanation/benchmarks.md (ARGS="--flink DIR")
	@status=0; $(BIN)/python -m benchmarks top-bids $(ARGS) || status=$$?; $(BIN)/python -m benchmarks report; exit $$status

bench-cycle: setup ## measure one cycle of the shop: seconds, Spark jobs and Delta commits by phase and table (ARGS="--rows N")
	@$(BIN)/python -m benchmarks cycle --checks --tables $(ARGS)

bench-growth: bench-setup ## measure how cost grows with rows, keys, bounds, micro-batches, age and backlog; takes hours
	@status=0; for part in growth age backlog; do $(BIN)/python -m benchmarks $$part $(ARGS) || status=$$?; done; \
	$(BIN)/python -m benchmarks report; exit $$status

bench-latency: setup-kafka setup-broker bench-setup ## measure the time from a record in Kafka to a table's row and to a sink's record (ARGS="--rates 100")
	@$(BIN)/python -m benchmarks latency $(ARGS) && $(BIN)/python -m benchmarks report-live

soak: setup-kafka setup-broker bench-setup ## stream from Kafka to Kafka on a Spark cluster, kill job, broker and workers, check lake, topics, memory and files (SOAK_MINUTES, SOAK_RATE, ARGS="--kill job,broker --seed 8")
	@$(BIN)/python -m benchmarks soak --minutes $(SOAK_MINUTES) --rate $(SOAK_RATE) $(ARGS)

bench-setup: setup
	@$(BIN)/python -c 'import matplotlib, numpy' 2>/dev/null || { \
	  uv=$$(command -v uv || echo .tidemark/uv/bin/uv); $(SYNC) --group bench; }

# Material's warning about a later version of MkDocs concerns no reader of this output. `--quiet` would hide warnings from `--strict` too.
docs: docs-setup ## build the site from docs/ into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

docs-serve: docs-setup ## serve the docs on this machine, and rebuild them when a page changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve $(ARGS)

docs-setup: setup
	@$(BIN)/python -c 'import material, mkdocstrings' 2>/dev/null || { \
	  uv=$$(command -v uv || echo .tidemark/uv/bin/uv); $(SYNC) --group docs; }

kafka-up: setup-kafka setup-broker ## run a local Kafka broker until Ctrl-C (ARGS=PORT, by default 9092)
	@exec $(BIN)/python -m platform_defs.setup.broker $(ARGS)

ui: setup ## open Dagster's UI on this project
	@set -e; home="$$($(BIN)/python -m platform_defs.dagster_home)"; \
	DAGSTER_HOME="$$home" exec $(BIN)/dg dev -w workspace.yaml $(ARGS)

clean: ## remove caches and Spark's temporary files; keeps .venv, the JARs and the lake
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log dist site $(STAMP) $(CLASSES) .tidemark/classes-*.jsa
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
