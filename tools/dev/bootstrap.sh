#!/usr/bin/env bash
# Sets up a fresh Debian 12 machine for building and testing: Debian packages, .venv, torch, Python
# packages. Does nothing, quickly, when all is there. Exit status 2: something is missing that only
# the user can install; the command is printed.
#
# PYTHON: the interpreter to build .venv from (default python3). Its torch, if it has one in range,
# is used as it is; else PyTorch's CPU wheel index if it can be reached; else PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly TORCH_PYPI="torch==2.13.0"
readonly TORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"
PYTHON=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*"; }
phase() { tools/dev/phase.sh "$@"; }

wanted_packages() {
  sed -e 's/#.*//' -e '/^\s*$/d' tools/dev/packages.txt
  # A Python of its own (pyenv, a venv, conda) brings venv and headers; Debian splits them off.
  case "$(command -v "$PYTHON" || echo /usr/bin/python3)" in
    /usr/bin/*) printf '%s\n' python3 python3-venv python3-dev ;;
  esac
}

missing_packages() {
  local package
  for package in $(wanted_packages); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      printf '%s\n' "$package"
  done
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  # A third-party source that cannot be reached must not stop the install.
  apt-get -q -o DPkg::Lock::Timeout=300 update || say "apt-get update had errors; going on"
  apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: make sure that these exist here:" $(wanted_packages)
    return 0
  fi
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    printf 'Debian packages are missing. Run this, then try again:\n\n  %s\n\n' \
      "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing% }" >&2
    return 2
  fi
  # shellcheck disable=SC2086
  phase packages tools/dev/bootstrap.sh --install-packages $missing
}

torch_in_range() {
  "$1" - 2>/dev/null <<'PY'
import sys
import torch
sys.exit(tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11))
PY
}

make_venv() {
  local parent=()
  if torch_in_range "$PYTHON"; then
    say "using the torch that $PYTHON has"
    parent=(--system-site-packages)
  fi
  "$PYTHON" -m venv --clear "${parent[@]}" .venv
  # A venv made from within a venv sees the base interpreter's packages, not its parent's.
  if [ ${#parent[@]} -gt 0 ]; then
    "$PYTHON" - > parent.pth.tmp <<'PY'
import sys
import sysconfig
if sys.prefix != sys.base_prefix:
    print(sysconfig.get_path("purelib"))
PY
    mv parent.pth.tmp "$(.venv/bin/python -c \
      'import sysconfig; print(sysconfig.get_path("purelib"))')/tenon_parent_environment.pth"
  fi
}

cpu_index_reachable() {
  .venv/bin/python - "$TORCH_CPU_INDEX/torch/" 2>/dev/null <<'PY'
import sys
import urllib.request
urllib.request.urlopen(sys.argv[1], timeout=5).read(1)
PY
}

install_torch() {
  if cpu_index_reachable; then
    say "torch from $TORCH_CPU_INDEX"
    .venv/bin/python -m pip install "$TORCH_PYPI" --index-url "$TORCH_CPU_INDEX" && return 0
    say "that failed; trying PyPI"
  else
    say "$TORCH_CPU_INDEX cannot be reached; torch from PyPI"
  fi
  .venv/bin/python -m pip install "$TORCH_PYPI"
}

python_environment() {
  local stamp
  stamp=.venv/.tenon-$( (cat tools/dev/requirements.txt; echo "$TORCH_PYPI") | sha256sum | cut -c1-16)
  if [ -e "$stamp" ] && .venv/bin/python -c '' 2>/dev/null; then
    return 0
  fi
  .venv/bin/python -m pip --version >/dev/null 2>&1 || phase venv tools/dev/bootstrap.sh --make-venv
  torch_in_range .venv/bin/python || phase torch tools/dev/bootstrap.sh --install-torch
  phase python .venv/bin/python -m pip install -r tools/dev/requirements.txt
  touch "$stamp"
}

case "${1:-}" in
  --install-packages) shift; install_packages "$@" ;;
  --make-venv) make_venv ;;
  --install-torch) install_torch ;;
  "") packages; python_environment ;;
  *) echo "usage: $0" >&2; exit 2 ;;
esac
