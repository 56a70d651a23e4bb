# What a user types: `make demo`, `make test`. The rest serves these two.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests start hundreds of Python processes: without bytecode each one compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all jars kafka lint format bench clean lock proto

setup: $(STAMP)

$(STAMP): requirements/dev.txt requirements/bootstrap.txt pyproject.toml tools/check_machine.sh
	@PYTHON="$(PYTHON)" sh tools/check_machine.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing the pinned packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt requirements/bootstrap.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
	@echo "setup: done; the command is $(BIN)/headgate"

demo: setup
	@$(BIN)/python examples/demo/run.py

# FILTER: paths of tests, or what `pytest -k` takes.
test: setup jars
	@$(BIN)/python tools/run_tests.py --filter='$(FILTER)'

# Every test there is. Its log is .logs/test-all.log.
test-all: setup jars
	@$(BIN)/python tools/run_tests.py --all --filter='$(FILTER)'

# Apache Kafka and Java Connect, for tests and for `make kafka`: once for each user.
jars: setup
	@$(BIN)/python -m local_kafka.jars

# A broker to try things on; `make kafka PORT=19092` where another port is wanted.
kafka: setup
	@$(BIN)/python -m local_kafka $(if $(PORT),--port $(PORT))

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy core/headgate adapters/arrow/headgate_arrow adapters/embedded/headgate_embedded adapters/grpc/headgate_grpc adapters/kafka/headgate_kafka adapters/registry/headgate_registry adapters/rest/headgate_rest adapters/spark/headgate_spark runtime/headgate_runtime connectors/headgate_connectors tools/local_kafka tools/run_tests.py tools/check_proto.py
	$(BIN)/python tools/check_proto.py
	$(BIN)/pyright --pythonpath $(BIN)/python

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The Python of proto/, which is committed: after each change of a .proto.
proto: setup
	@$(BIN)/python tools/make_proto.py
	@$(BIN)/python tools/check_proto.py --write

bench: setup
	@$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist .logs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Pins every package with hashes; addresses of indexes are not written.
lock:
	$(BIN)/uv pip compile requirements/dev.in -o requirements/dev.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade
	$(BIN)/uv pip compile requirements/bootstrap.in -o requirements/bootstrap.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade
