# `make` alone lists the targets.
PY := .venv/bin/python
# Tests without containers mostly wait: three at a time on two cores. Files stay whole: what they share is made once.
SPREAD := -n 3 --dist loadfile
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev docker registry demo down lint format test again test-unit test-contract test-integration test-engine soak golden docs lock bench bench-gateway

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: ## .venv with the packages of ctl.py
	@tools/setup-python.sh

setup-dev:
	@tools/setup-python.sh dev

docker: ## a Docker engine, if none answers (DOCKER=no refuses)
	@tools/setup-docker.sh

registry:
	@tools/setup-registry.sh

demo: setup docker ## everything from nothing: the stack with the stand-in engine, and a streamed answer
	@$(PY) ctl.py up --profile stub
	@$(PY) ctl.py smoke
	@echo "next     a key of your own: $(PY) ctl.py keys add NAME --owner YOU" >&2
	@echo "stop     $(PY) ctl.py down" >&2

down: ## take the stack down, volumes stay
	@$(PY) ctl.py down

lint: setup-dev ## ruff, mypy, yamllint, shell syntax
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m yamllint -s -c .yamllint.yaml compose.yaml compose config
	@for script in tools/*.sh .ci/run; do bash -n $$script || exit 1; done

format: setup-dev
	@$(PY) -m ruff check --fix -q . ; $(PY) -m ruff format -q .

test-unit: setup-dev docker ## core, golden trees, layers
	@$(PY) -m pytest $(SPREAD) tests/unit tests/golden

test-contract: setup-dev ## real Envoy, gate and stand-in as processes on loopback
	@$(PY) -m pytest $(SPREAD) tests/contract

test-integration: setup-dev docker registry ## real Compose, real images
	@$(PY) -m pytest tests/integration

test: setup-dev docker registry lint ## everything, reduced counts
	@$(PY) -m pytest $(SPREAD) tests/unit tests/golden tests/contract; first=$$?; $(PY) -m pytest tests/integration && exit $$first

again: setup-dev docker registry ## what failed the last time, one at a time
	@$(PY) -m pytest --last-failed --last-failed-no-failures none tests

test-engine: setup-dev docker ## the stand-in against real vLLM on a CPU (an image of 1.9 GB); RECORD=1 rewrites tests/fixtures/parser
	@FLASHBOX_ENGINE=1 RECORD=$(RECORD) $(PY) -m pytest --timeout 900 tests/engine

soak: setup-dev docker registry ## the tests with their full counts
	@FLASHBOX_SOAK=1 $(PY) -m pytest tests

golden: setup-dev ## rewrite tests/golden from the code; look at the diff
	@$(PY) -m tests.golden.regenerate

docs: setup-dev ## rewrite generated pages
	@$(PY) -m tests.golden.regenerate docs

bench: setup-dev docker ## CPU time of the commands, overhead of the gateway
	@$(PY) -m tests.bench

bench-gateway: setup-dev ## what the gateway's whole chain adds to a request, to a stream, beside large uploads
	@$(PY) -m tests.bench_gateway

lock: ## lock files from pyproject.toml (needs uv)
	@uv pip compile -q --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock
	@uv pip compile -q --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-header --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
