# The verbs are ./motley's: `make VERB NAME=value` is `./motley VERB --name value`. The other targets call a tool each.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
VERBS := demo inventory check bootstrap notify-test plan launch sweep torchrun status dashboard follow logs stop queue pause unpause wake runs fetch \
  report ask chat serve generate eval export tensorboard clean rent rented give-back doctor slurm-conf check-versions check-model check-rewards undo
OTHERS := $(shell sed -n 's/^\([a-z-]*\):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST)))

# A name that a target does not know stops it before anything is made: `make undo LIMT=…` would undo every machine.
export MOTLEY_GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))

.PHONY: known $(VERBS) $(OTHERS)
$(VERBS) $(OTHERS): known
known:
	@$(if $(MOTLEY_GIVEN),$(or $(PYTHON),python3) -m console.command_line.make_variables $(or $(MAKECMDGOALS),help))

$(VERBS):
	@MOTLEY_CALLED_AS=make ./motley $@

help: ## every command on one screen
	@python3 -m console.command_line.without_environment help make

help-dev: ## this list: for work on Motley itself
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: ## the controller's environment (.venv), made or refreshed; every target does it automatically
	@requirements/make_env.sh .venv controller dev

test: env ## everything: lint, unit, lab end to end; what cannot run here is reported
	@tests/run.sh all

test-quick: env ## before each commit: lint, most of unit, one bootstrap, one launch, one loss curve against the truth
	@tests/run.sh quick

lint: env ## ruff, mypy, ansible-lint, shellcheck
	@tests/run.sh lint

test-unit: env ## tests that need no host
	@tests/run.sh unit

test-lab: env ## tests on real hosts (root)
	@tests/run.sh lab

test-long: env ## what is marked long: each shape of machine as three of them on each base, and more of the training (root, hours)
	@tests/run.sh long

test-train: ## tests of the training package, in its own environment
	@tests/run.sh train

# Any Python with torch; that of a node's own environment where there is one. LINES is also the height of a terminal.
TORCH_PYTHON = $(or $(PYTHON),$(firstword $(wildcard $(HOME)/ai-cluster/env/bin/python)),python3)
test-gpu: ## what only graphics cards can prove: PYTHON=python3 LINES=a,b DEVICE=cpu AGAIN=1; two machines: PAIR=NODE,NODE MODEL=NAME INVENTORY=FOLDER
	@"$(TORCH_PYTHON)" -m tests.gpu $(if $(DEVICE),--device $(DEVICE)) $(if $(AGAIN),--again) \
	  $(if $(filter command,$(firstword $(origin LINES))),--lines "$(LINES)") $(if $(PAIR),--pair "$(PAIR)" $(if $(INVENTORY),--inventory "$(INVENTORY)") $(if $(MODEL),--model "$(MODEL)"))

bench: env ## measure; the tables of docs/BENCHMARKS.md: PARTS="launch turns" (PARTS=-h lists all) REPEATS=3
	@$(PY) -m tests.bench $(PARTS) $(if $(REPEATS),--repeats $(REPEATS))

bench-faults: env ## the three worst losses, twenty times each, in the lab: REPEATS=20
	@$(PY) -m tests.bench.faults $(if $(REPEATS),--repeats $(REPEATS))

bench-load: env ## an hour of training at full load without a false loss: MINUTES=60
	@$(PY) -m tests.bench.faults load $(if $(MINUTES),--load-minutes $(MINUTES))

lab-up: env ## three fresh hosts on this machine (root): PROFILE=trio|pair|five BASE=bookworm|trixie|forky SHAPE=desktop-2404
	@$(PY) -m lab up --profile $(or $(PROFILE),trio) $(if $(BASE),--base $(BASE)) $(SHAPE:%=--shape %)

lab-down: env ## remove the lab, nothing is left
	@$(PY) -m lab down

lab-status: env ## the lab's hosts, addresses and faults
	@$(PY) -m lab status

lock: ## re-lock all requirements, or SETS="controller dev"
	@requirements/lock.sh $(SETS)
