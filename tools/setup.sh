#!/usr/bin/env bash
# Gets a bare Debian 12 (or Ubuntu 24.04: not tried) machine ready to build: distribution packages, and LibTorch and UCX in third_party/.
#   tools/setup.sh              what building, running and the default tests need
#   tools/setup.sh --python     also PyTorch, transformers and TensorBoard in third_party/venv: the references of the slow parity tests
#   tools/setup.sh --lint       also the pinned clang-format and clang-tidy in third_party/lint
#   tools/setup.sh --no-apt     leave the system's packages alone
# Safe to call again: what is there stays as it is. Versions and hashes below are the only place that names them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
third_party=${THIRD_PARTY:-$root/third_party}
apt=yes python=no lint=no
for option in "$@"; do
  case $option in
    --python) python=yes ;;
    --lint) lint=yes ;;
    --no-apt) apt=no ;;
    *) echo "tools/setup.sh: unknown option '$option'; known: --python --lint --no-apt" >&2; exit 2 ;;
  esac
done

packages=(g++ cmake ninja-build ccache lld pkg-config git ca-certificates python3 python3-pip python3-venv iproute2
  libcaf-dev capnproto libcapnp-dev libssl-dev zlib1g-dev libspdlog-dev libfmt-dev libgtest-dev libgmock-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libxxhash-dev fortunes)

# name==version and the sha256 of the one file taken: the Python tag does not matter, only C++ files are used
wheels="torch==2.11.0                 --hash=sha256:0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
nvidia-cuda-runtime==13.0.96  --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti==13.0.85    --hash=sha256:4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
libucx-cu13==1.22.0           --hash=sha256:c6e0aaa82dc6e49dc3ddaac465b530e014f48b6c1c6b5ae74fbdd199d824351b"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    echo "tools/setup.sh: installing packages needs root or sudo: $*" >&2; exit 1; fi
}

install_packages() {
  local missing
  missing=$(comm -23 <(printf '%s\n' "${packages[@]}" | sort) \
    <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^ii  *//p' | sort))
  [ -z "$missing" ] && return
  echo "  installing packages:" $missing
  as_root apt-get update -qq
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

fetch_wheels() {
  local stamp=$third_party/.wheels
  [ "$(cat "$stamp" 2>/dev/null)" = "$wheels" ] && return
  echo "  fetching LibTorch 2.11.0 and UCX 1.22.0 into $third_party (about 600 MB)"
  local download; download=$(mktemp -d "${TMPDIR:-/tmp}/wheels.XXXX")
  trap 'rm -rf "$download"' RETURN
  echo "$wheels" > "$download/requirements.txt"
  # shellcheck disable=SC2046
  python3 -m pip download -q --disable-pip-version-check --no-deps --no-cache-dir --require-hashes --only-binary=:all: --python-version 3.12 --implementation cp \
    $(printf -- '--platform %s ' manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_25_x86_64 manylinux_2_24_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 any) \
    -d "$download" -r "$download/requirements.txt"
  rm -rf "$stamp" "$third_party/site" && mkdir -p "$third_party/site"
  python3 - "$download" "$third_party/site" <<'PYTHON'
import glob, os, re, sys, zipfile
source, target = sys.argv[1:]
wanted = [r"torch/lib/lib(torch_cpu|c10)\.so$", r"torch/lib/libgomp\.so\.1$", r"torch/include/", r"nvidia/cu13/lib/lib(cudart|cupti)\.so\.13$",
          r"libucx/(include|lib/cmake)/", r"libucx/lib/libuc[mpst]\.so(\.0)?$", r"libucx/lib/ucx/libuc[mt]_(cma|cuda)\.so\.0$", r"libucx/bin/ucx_(info|perftest)$",
          r"libucx_cu13\.libs/libcudart"]
for wheel in glob.glob(source + "/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and any(re.match(w, name) for w in wanted):
                archive.extract(name, target)
for tool in glob.glob(target + "/libucx/bin/*"):
    os.chmod(tool, 0o755)
PYTHON
  echo "$wheels" > "$stamp"
}

# A virtual environment with pinned packages; the stamp holds the pins.
make_venv() {  # folder, pins
  local folder=$third_party/$1 pins=$2
  [ "$(cat "$folder/.pins" 2>/dev/null)" = "$pins" ] && return
  echo "  making third_party/$1 with $pins"
  rm -rf "$folder"
  python3 -m venv "$folder"
  # shellcheck disable=SC2086
  "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile $pins
  echo "$pins" > "$folder/.pins"
}

[ "$apt" = yes ] && install_packages
mkdir -p "$third_party"
fetch_wheels
[ "$python" = yes ] && make_venv venv "torch==2.11.0 transformers==4.57.1 safetensors==0.6.2 numpy==2.2.6 tensorboard==2.21.0 wandb==0.31.0"
[ "$lint" = yes ] && make_venv lint "clang-format==18.1.8 clang-tidy==18.1.8"
exit 0
