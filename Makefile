# Every target sets up its own .venv. Only Python 3.11+, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check bench book deep clean

$(READY): pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c ci/constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## four servers share a store, one is killed; then the gate tells proof from pretence
	$(BIN)/holdtrue demo
	$(BIN)/gate demo

test: $(READY)  ## every test and property
	$(BIN)/python -m pytest -m "not deep"

check: $(READY)  ## lint, types, layers, trace and book
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p holdtrue -p holdtrue_gate
	$(BIN)/gate trace
	$(BIN)/gate book --check

bench: $(READY)  ## figures as ratios of one run
	$(BIN)/python -m impl.benchmarks.run

book: $(READY)  ## write INVARIANTS.md from the specs
	$(BIN)/gate book

deep: $(READY)  ## longer searches, planted bugs, reached failpoints
	HOLDTRUE_PROPERTIES=deep $(BIN)/python -m pytest --timeout 1800
	$(BIN)/gate trace --run
	$(BIN)/gate sabotage

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
