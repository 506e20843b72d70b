#!/usr/bin/env bash
# The tests, by part: run.sh all|lint|unit|lab|train|long. Installs what the lab needs where it may (root).
set -euo pipefail
cd "$(dirname "$0")/.."
py=.venv/bin/python
part=${1:-all}

lint() {
  echo "== lint"
  .venv/bin/ruff check --quiet .
  .venv/bin/ruff format --quiet --check .
  .venv/bin/mypy --no-error-summary
  git ls-files '*.sh' .ci/run | xargs .venv/bin/shellcheck
  PATH=$PWD/.venv/bin:$PATH .venv/bin/ansible-lint -q
}

lab_packages() {
  if [ "$(id -u)" = 0 ]; then $py -m lab install-packages; fi
}

browser() { # the report is looked at with one; Debian has a small one, elsewhere that test is named as not run
  if [ "$(id -u)" = 0 ] && ! command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null; then
    {
      apt-get -qq update
      DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends \
        chromium-headless-shell
    } >/dev/null 2>&1 || true
  fi
}

train_env=${MOTLEY_CACHE:-$HOME/.cache/motley}/envs/train

make_train_env() { requirements/make_env.sh "$train_env" node-cpu test-train; }

train() {
  echo "== tests: tests/train, ${1:-not long}"
  OMP_NUM_THREADS=1 "$train_env/bin/python" -m pytest -q -p no:cacheprovider -n 2 --dist loadfile -m "${1:-not long}" \
    tests/train
}

tests() {
  echo "== tests: $*"
  $py -m pytest -q "$@"
}

# Hosts wait as much as they compute: several files at a time, each with labs of its own. What measures the machine runs
# alone.
lab() {
  local at_once=$(($(nproc) < 4 ? $(nproc) + 1 : 4))
  tests "$@" -m "not alone and not long" -n "$at_once" --dist loadfile
  tests "$@" -m "alone and not long"
}

left_out() { echo "not run: what is marked long (each shape of machine as three of them on each base), which takes hours: make test-long"; }

case $part in
  all)
    lint
    lab_packages
    browser
    if make_train_env; then trains=yes; else trains=no; fi
    if [ $trains = yes ]; then train; fi
    lab tests --ignore tests/train
    if [ $trains = no ]; then
      echo "everything else has passed; tests/train could not run: its environment could not be made (the reason is above)" >&2
      exit 1
    fi
    left_out
    ;;
  lint) lint ;;
  unit) tests tests/unit ;;
  lab) lab_packages && lab tests/lab ;;
  train) make_train_env && train ;;
  long)
    make_train_env
    train long
    lab_packages
    tests tests --ignore tests/train -m long -n "$(($(nproc) < 4 ? $(nproc) : 4))" --dist load
    ;;
  *)
    echo "tests/run.sh: no part '$part': all, lint, unit, train, lab, long" >&2
    exit 2
    ;;
esac
