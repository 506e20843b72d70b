#!/usr/bin/env bash
# Re-lock every set from its .in file (or the sets named as arguments): make lock [SETS="controller dev"]
# One lock serves Python 3.11 to 3.13: controller and nodes may differ in their Debian or Ubuntu.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd .. && pwd)
uv=$root/.venv-lock/bin/uv
[ -x "$uv" ] || { python3 -m venv "$root/.venv-lock" && "$root/.venv-lock/bin/pip" --quiet install uv; }

lock() {
  local set=$1
  shift
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header "$@" "$set.in" --output-file "$set.txt"
  echo "$set: $(grep -c == "$set.txt") packages"
}

cuda_only() { # what torch's CUDA build pulls in and its CPU build has no use for
  sed -nE 's/^((nvidia|cuda|triton)[a-z0-9-]*)==.*/--no-emit-package \1/p' node-gpu.txt | sort -u
}

for set in ${*:-controller dev node-gpu node-gpu-r570 node-cpu unsloth embedded-model test-train gguf parquet}; do
  case $set in
    node-cpu) lock node-cpu --no-emit-package torch $(cuda_only) ;;
    unsloth | embedded-model | gguf) lock "$set" --no-deps ;;
    *) lock "$set" ;;
  esac
done
