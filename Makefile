# Every command of the project. `make help` lists them; nothing must be installed before
# but Python 3.11+, make and (for git hooks of your own) git. All of it works as root or not.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# `make -f somewhere/Makefile` works as `make -C somewhere` does, spaces in the path or not.
HERE := $(shell dirname '$(strip $(MAKEFILE_LIST))')
MOVE := cd '$(HERE)' &&

VENV := .venv
PY := $(MOVE) $(VENV)/bin/python
# Test processes at once. Each has its own Postgres and Valkey.
JOBS ?= 2
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: demo test test-more test-all lint types fmt bench schema rollout fuzz sim kills chaos mutants mutants-sql mutation clean help venv-demo venv-bench venv-mutation venv-test

demo: venv-demo ## 60 payments through every fault and two kills, on real servers (ARGS=--quick, --keep, --sabotage=NAME)
	@$(MOVE) $(VENV)/bin/vpay-sandbox demo $(ARGS)

test: venv-test ## the suite, on servers of its own, about 10 minutes (ARGS="-k word")
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

test-more: venv-test ## a seeded slice of the slow tests, 2 to 5 minutes
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup --tier=more $(ARGS)

test-all: venv-test ## the suite and every slow test
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup --tier=all $(ARGS)

lint: venv-test ## ruff: rules and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: venv-test ## mypy --strict
	@$(PY) -m mypy

fmt: venv-test ## put the code into its format, mend what ruff can mend
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

bench: venv-bench ## figures beside the peers', on this machine (no test depends on one)
	@$(MOVE) PYTHONPATH=. $(VENV)/bin/python bench/run.py $(ARGS)
	@$(MOVE) PYTHONPATH=. $(VENV)/bin/python bench/inbox.py

schema: venv-test ## write schema/schema.sql anew from the migrations
	@$(PY) -m tests.schema.dump

rollout: venv-test ## the tests of the commit before the newest migration, on today's schema
	@$(MOVE) ARGS='$(ARGS)' .ci/rollout

fuzz: venv-test ## every parser on what nobody meant to send (ARGS="--seconds 300 --seed 1")
	@$(PY) -m tests.fuzz $(ARGS)

sim: venv-test ## the model of the whole installation, for long (ARGS="--steps 100000 --seed 7")
	@$(PY) -m tests.model.sim $(ARGS)

mutants: venv-test ## apply each patch of tests/mutants/ to a copy; its test must fail (ARGS="--layers", "--results FILE")
	@$(PY) -m tests.mutants.run $(ARGS)

mutants-sql: venv-test ## take conditions out of store/*.sql one at a time; a test must fail (ARGS="leases.sql:")
	@$(PY) -m tests.mutants.run_sql $(ARGS)

mutation: venv-mutation ## mutmut over settle, start, signatures both ways and egress (ARGS=--show)
	@$(PY) -m tests.mutants.mutation $(ARGS)

kills: venv-test ## the kill matrix: each process harmed at each point (ARGS="-k settlement")
	@$(PY) -m pytest -n $(JOBS) --dist loadgroup --tier=all tests/kills $(ARGS)

chaos: venv-test ## a soak of real processes under seeded faults (ARGS="--seconds 360 --seed 1")
	@$(PY) -m tests.chaos.run $(ARGS)

clean: ## remove what the other targets made
	@$(MOVE) rm -rf $(VENV) .tox build dist *.egg-info .mypy_cache .ruff_cache

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' '$(HERE)/Makefile' | awk -F@ '{ printf "%-18s %s\n", $$1, $$2 }'

venv-demo:
	@$(MOVE) .ci/venv $(VENV) sandbox

venv-bench:
	@$(MOVE) .ci/venv $(VENV) sandbox,web,bench

venv-mutation:
	@$(MOVE) .ci/venv $(VENV) sandbox,test,mutation

venv-test:
	@$(MOVE) .ci/venv $(VENV) sandbox,test
