#!/usr/bin/env bash
# Installs what the GPU engine is compiled with, unless it is there, and prints where: CUDA's
# compiler and headers, and those of cuBLAS, cuDNN and NCCL with their libraries. These are NVIDIA's
# own wheels, pinned; no driver and no GPU is needed.
#
#   cmake -DMUSTER_CUDA="$(worker/gpu/toolkit.sh)" ...
#   worker/gpu/toolkit.sh --libraries FOLDER    copies those that the engine loads into FOLDER
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/muster/cuda-13.0.2

wheels='
nvidia-cublas==13.1.0.3 --hash=sha256:ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-nvrtc==13.0.88 --hash=sha256:ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cudnn-cu13==9.19.0.56 --hash=sha256:d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nvidia-cudnn-frontend==1.32.0 --hash=sha256:c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
nvidia-nccl-cu13==2.28.9 --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
nvidia-nvml-dev==13.0.87 --hash=sha256:082871368275cf6620fc900f55d8eaf2563b263a38a00a5168e9650bce963ba1
nvidia-nvtx==13.0.85 --hash=sha256:4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0'

if [[ ! -x $folder/bin/nvcc ]]; then
  rm -rf "$folder.part"
  # Debian's Python: another one on PATH may come without pip.
  /usr/bin/python3 -m pip install --no-deps --require-hashes --only-binary :all: \
    --target "$folder.part" --no-compile --disable-pip-version-check --root-user-action ignore \
    --requirement <(printf '%s\n' "$wheels") >&2
  toolkit=$folder.part/nvidia/cu13
  # Where compilers and linkers look for them.
  ln -s lib "$toolkit/lib64"
  for library in cudnn nccl; do
    cp -r "$folder.part/nvidia/$library/include/." "$toolkit/include/"
    for versioned in "$folder.part/nvidia/$library"/lib/lib*.so.*; do
      ln -s "../../$library/lib/$(basename "$versioned")" "$toolkit/lib/"
    done
  done
  cp -r "$folder.part/include/." "$toolkit/include/"
  for versioned in "$toolkit"/lib/lib*.so.[0-9]*; do
    plain=${versioned%%.so.*}.so
    [[ -e $plain ]] || ln -s "$(basename "$versioned")" "$plain"
  done
  ln -s nvidia/cu13/bin "$folder.part/bin"
  mv "$folder.part" "$folder"
fi
toolkit=$folder/nvidia/cu13
echo "$toolkit"

# Of cuDNN what attention needs: its graphs and the engines for them, which compile some kernels at
# run time. aws-ofi-nccl and libfabric load the runtime.
loaded='
libcublasLt.so.13
libcudart.so.13
libcudnn.so.9
libcudnn_engines_precompiled.so.9
libcudnn_engines_runtime_compiled.so.9
libcudnn_graph.so.9
libcudnn_heuristic.so.9
libnccl.so.2
libnvrtc-builtins.so.13.0
libnvrtc.so.13'
if [[ ${1:-} == --libraries ]]; then
  mkdir -p "$2"
  for library in $loaded; do
    cp --dereference "$toolkit/lib/$library" "$2/"
  done
  ln -sf libcudart.so.13 "$2/libcudart.so" # by which they look for it
fi
