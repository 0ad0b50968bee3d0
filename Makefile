# Everything a person or a CI runs, on a machine that has Python 3.11, make and pip and nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS   ?=
JOBS   ?= 2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test lint types directions tests kernels bench fmt clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/serve.stamp ## Serve the embedded model on 127.0.0.1:8000; ARGS="--port 9000" adds flags
	$(BIN)/cenote serve $(ARGS)

test: lint types directions tests ## Lint, types, import directions, then every test

lint: $(VENV)/test.stamp ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp ## Check types, strictly
	$(BIN)/mypy

directions: $(VENV)/test.stamp ## Check which floor of the house imports which
	$(BIN)/lint-imports

tests: $(VENV)/test.stamp ## Run the tests alone; ARGS="-k tokenizer" picks some
	$(BIN)/pytest -n $(JOBS) $(ARGS)

kernels: $(VENV)/kernels.stamp ## Compile Cenote's own CPU kernels into the environment, where there is a C compiler

clients: $(VENV)/test.stamp ## Run clients that pin other versions, in an environment of their own, against a real server
	$(BIN)/pytest -m clients $(ARGS)

bench: $(VENV)/test.stamp ## Race Cenote against its peers on this machine
	$(BIN)/python -m bench $(ARGS)

fmt: $(VENV)/test.stamp ## Format the code and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the environments, caches and built packages
	rm -rf $(VENV) .venvs build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and alone: named exactly, pip takes the build that lies nearest (a CPU wheel where one is offered);
# as a mere range inside the other requirements it would be free to fetch a newer one with gigabytes of CUDA.
$(VENV)/torch.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt $$(grep '^torch==' constraints.txt)
	@touch $@

# Never fatal without a compiler: everything works without these, on PyTorch's own products.
CC_FOUND := $(shell test "$$(uname -sm)" = "Linux x86_64" && command -v $(firstword $(CC)))
$(VENV)/kernels.stamp: $(VENV)/torch.stamp $(shell find kernels -name '*.[ch]' -o -name '*.py' -o -name '*.toml')
ifeq ($(CC_FOUND),)
	@echo "This is not Linux on x86-64 with a C compiler ($(firstword $(CC))): no kernels are built, PyTorch computes alone."
else
	$(PIP) install -c constraints.txt -e ./kernels || echo "The kernels did not compile, see above: PyTorch computes alone."
endif
	@touch $@

$(VENV)/serve.stamp: $(VENV)/torch.stamp $(VENV)/kernels.stamp pyproject.toml
	$(PIP) install -c constraints.txt -e '.[server,cli,demo]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/torch.stamp $(VENV)/kernels.stamp pyproject.toml
	$(PIP) install -c constraints.txt -e '.[test]'
	@touch $@ $(VENV)/serve.stamp
