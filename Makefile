# Every target is one line that calls the tool that does the work. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
INVENTORY ?= inventory/homelab
PROFILE ?= trio
BASE ?=
PY := .venv/bin/python
# The lab's hosts can be reached from the lab's own controller only.
IN_LAB := $(if $(filter inventory/lab,$(INVENTORY)),$(PY) -m lab exec --,)

# What is asked of a run, as options of `python -m console`.
NODES ?= $(LIMIT)
ASKED = --inventory "$(INVENTORY)" $(if $(PHASE),--phase $(PHASE)) $(if $(NODES),--limit "$(NODES)")

# Through the environment: the shell would cut at a quote, and Ansible at a space.
export MODEL DATASET RUN RESUME SET
WANTED = $(if $(VAULT),--ask-vault-pass) $(foreach name,model dataset run resume,$(call given,$(name),$(shell echo $(name) | tr a-z A-Z))) \
  $(if $(NODES),--set nodes="$(NODES)") $(if $(SET),--settings "$$SET")
given = $(if $($2),--set "$1=$$$2")

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: env ## quick start: three simulated machines, training, a power cut, an adapter; DEMO_FAST=1 FOLDERS=1 BASE=bookworm
	@$(PY) -m lab demo $(if $(DEMO_FAST),--fast) $(if $(FOLDERS),--folders) $(if $(BASE),--base $(BASE))

env: ## the controller's environment (.venv), made or refreshed
	@requirements/make_env.sh .venv controller dev || { rc=$$?; [ $$rc = 2 ] || printf '%s\n' \
	  "the environment could not be made; the words above say why: most often no way to the package index, or a full disk" \
	  "fix: pip config list, df -h . (and where python3-venv is missing: sudo apt install python3-venv); then again" >&2; exit $$rc; }

inventory: env ## describe your machines: asks, or HOSTS="user@192.168.1.23 user@192.168.1.31"
	@$(PY) -m console inventory --inventory "$(INVENTORY)" $(if $(HOSTS),--hosts "$(HOSTS)")

check: env ## check the inventory; connects to nothing
	@$(IN_LAB) $(PY) -m console check --inventory "$(INVENTORY)"

bootstrap: env ## set up your machines and test them: PHASE=static_ip LIMIT=NODE REPIN=NODE REBOOT=yes CHECK=1 VERBOSE=1
	@$(IN_LAB) $(PY) -m console bootstrap $(ASKED) $(if $(REPIN),--repin "$(REPIN)") $(if $(CHECK),--check) $(if $(ROLLBACK),--rollback)

report: env ## a run on one page, results/RUN/report.html: RUN=NAME (default: the one fetched last)
	@$(PY) -m console report $(if $(RUN),--run "$(RUN)")

check-versions: env ## what must agree between the nodes, and whether it does: FIX=yes JSON=1 LIMIT=NODE
	@$(IN_LAB) $(PY) -m console check-versions --inventory "$(INVENTORY)" $(if $(NODES),--limit "$(NODES)") \
	  $(if $(FIX),--fix) $(if $(JSON),--json)

doctor: env ## what is wrong with the cluster, each with its cause and fix: NODES=a,b FIX=yes QUICK=1 FULL=1 JSON=1
	@$(IN_LAB) $(PY) -m console doctor --inventory "$(INVENTORY)" $(if $(NODES),--limit "$(NODES)") \
	  $(if $(FIX),--fix) $(if $(QUICK),--quick) $(if $(FULL),--full) $(if $(JSON),--json)

# The lab's controller reaches no package index: what it would fetch there is fetched before.
embedded:
	@$(if $(and $(IN_LAB),$(filter smollm2-135m,$(MODEL))),$(PY) requirements/wheelhouse.py 3.11 embedded-model >/dev/null)

plan: env ## what a run would do, and whether it can: MODEL=llama2-7b DATASET=./my.jsonl RUN=NAME NODES=a,b SET="max_steps=40"
	@$(IN_LAB) $(PY) -m console plan --inventory "$(INVENTORY)" $(WANTED)

launch: env embedded ## train on all nodes: as plan, and RESUME=NAME VAULT=ask; every variable: docs/reference.md
	@$(IN_LAB) $(PY) -m console launch --inventory "$(INVENTORY)" $(WANTED)

LIFE = $(IN_LAB) $(PY) -m console $@ --inventory "$(INVENTORY)"

status: env ## which run is running, where, how far; or which was the last
	@$(LIFE) $(if $(JSON),--json)

follow: env ## watch the run; Ctrl-C leaves it alone
	@$(LIFE)

logs: env ## the messages of each node's part of the run: NODE=gpu-worker-1
	@$(LIFE) $(if $(NODE),--limit "$(NODE)")

stop: env ## save and stop the run on every node; no process is left
	@$(LIFE)

fetch: env ## adapter and event logs of a run to results/RUN: RUN=NAME, otherwise the newest
	@$(LIFE) $(if $(RUN),--run "$(RUN)")

tensorboard: env ## the curves of a run in a browser, also while it is running: RUN=NAME PORT=6006
	@$(LIFE) $(if $(RUN),--run "$(RUN)") $(if $(PORT),--port $(PORT))

ask: env ## your questions, answered before and after training: RUN=NAME QUESTION="…", otherwise typed; TOKENS=400
	@$(LIFE) $(if $(RUN),--run "$(RUN)") $(if $(QUESTION),--question "$$QUESTION") $(if $(TOKENS),--answer-tokens $(TOKENS))

eval: env ## loss and answers on the held-out part, before and after: RUN=NAME
	@$(LIFE) $(if $(RUN),--run "$(RUN)")

export: env ## the adapter as others load it, on the head: RUN=NAME TO=gguf|merged|adapter
	@$(LIFE) $(if $(RUN),--run "$(RUN)") $(if $(TO),--to $(TO))

runs: env ## every run on every node
	@$(LIFE)

clean: env ## delete the checkpoints of finished runs, after asking: RUN=NAME YES=1
	@$(LIFE) $(if $(RUN),--run "$(RUN)") $(if $(YES),--yes)

undo: env ## undo a phase: PHASE=static_ip, or PHASE=all
	@$(IN_LAB) $(PY) -m console undo $(ASKED)

test: env ## everything: lint, unit, lab end to end; what cannot run here is reported
	@tests/run.sh all

test-quick: env ## before each commit: lint, unit, one bootstrap, one launch, one loss curve against the truth
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
test-gpu: ## what only graphics cards can prove: PYTHON=python3 LINES=a,b DEVICE=cpu AGAIN=1; two machines: PAIR=NODE,NODE
	@"$(TORCH_PYTHON)" -m tests.gpu $(if $(DEVICE),--device $(DEVICE)) $(if $(AGAIN),--again) \
	  $(if $(filter command,$(firstword $(origin LINES))),--lines "$(LINES)") $(if $(PAIR),--pair "$(PAIR)" --inventory "$(INVENTORY)" $(if $(MODEL),--model "$(MODEL)"))

bench: env ## measure; the tables of docs/BENCHMARKS.md: PARTS="lab fan_out sync balance scaling predict slow_links look launch bootstrap faults" REPEATS=3
	@$(PY) -m tests.bench $(PARTS) $(if $(REPEATS),--repeats $(REPEATS))

bench-faults: env ## the three worst losses, twenty times each, in the lab: REPEATS=20
	@$(PY) -m tests.bench.faults $(if $(REPEATS),--repeats $(REPEATS))

bench-load: env ## an hour of training at full load without a false loss: MINUTES=60
	@$(PY) -m tests.bench.faults load $(if $(MINUTES),--load-minutes $(MINUTES))

lab-up: env ## three fresh hosts on this machine (PROFILE=trio|pair|five BASE=bookworm|trixie|forky SHAPE=desktop-2404)
	@$(PY) -m lab up --profile $(PROFILE) $(if $(BASE),--base $(BASE)) $(SHAPE:%=--shape %)

lab-down: env ## remove the lab, nothing is left
	@$(PY) -m lab down

lab-status: env ## the lab's hosts, addresses and faults
	@$(PY) -m lab status

lock: ## re-lock all requirements, or SETS="controller dev"
	@requirements/lock.sh $(SETS)
