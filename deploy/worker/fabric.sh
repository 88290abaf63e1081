#!/usr/bin/env bash
# fabric.sh FOLDER: installs CUDA's runtime and NCCL, libfabric with its EFA provider, and
# aws-ofi-nccl into FOLDER/lib, from the sources that deploy/worker/Dockerfile's arguments name. An
# empty argument leaves that part out.
set -euo pipefail
folder=$1
mkdir -p "$folder/lib"
work=$(mktemp -d)

need() {
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
}

# unpack URL SHA256: into the current folder.
unpack() {
  curl --fail --location --silent --show-error --output "$work/source" "$1"
  echo "$2  $work/source" | sha256sum --check --quiet
  tar --extract --file "$work/source" --strip-components 1
}

if [[ -n $NVIDIA_WHEELS ]]; then
  need ca-certificates python3-pip
  python3 -m pip install --no-deps --require-hashes --only-binary :all: --no-compile \
    --target "$work/wheels" --break-system-packages \
    --requirement <(tr ';' '\n' <<<"$NVIDIA_WHEELS")
  find "$work/wheels/nvidia" -name 'lib*.so.*' -exec cp --target-directory "$folder/lib" {} +
fi

if [[ -n $LIBFABRIC_SOURCE ]]; then
  need autoconf automake ca-certificates curl g++ libibverbs-dev libtool make
  mkdir "$work/libfabric"
  cd "$work/libfabric"
  unpack "$LIBFABRIC_SOURCE" "$LIBFABRIC_SHA256"
  ./autogen.sh
  ./configure --prefix="$folder" --enable-efa --disable-static --disable-opx \
    --disable-psm2 --disable-psm3 --disable-usnic --disable-verbs
  make -j"$(nproc)" install
fi

if [[ -n $AWS_OFI_NCCL_SOURCE ]]; then
  if [[ -z $LIBFABRIC_SOURCE || -z $NVIDIA_WHEELS ]]; then
    echo "fabric.sh: AWS_OFI_NCCL_SOURCE needs LIBFABRIC_SOURCE and NVIDIA_WHEELS" >&2
    exit 1
  fi
  need libhwloc-dev
  mkdir "$work/aws-ofi-nccl"
  cd "$work/aws-ofi-nccl"
  unpack "$AWS_OFI_NCCL_SOURCE" "$AWS_OFI_NCCL_SHA256"
  cuda=$work/wheels/nvidia/cu13
  # Where configure looks for them.
  ln -s libcudart.so.13 "$cuda/lib/libcudart.so"
  ln -sfn lib "$cuda/lib64"
  # Its own release archives have this; those that GitHub makes of a tag are named by the version.
  [[ -e .release_version ]] ||
    tar --list --file "$work/source" | sed -n '1s/.*-\([^-/]*\)\/.*/\1/p' >.release_version
  ./autogen.sh
  ./configure --prefix="$folder" --with-libfabric="$folder" --with-cuda="$cuda" \
    --disable-tests --enable-platform-aws
  make -j"$(nproc)" install
fi
# What only compilers need.
rm -rf "${folder:?}"/{bin,include,share} "$folder"/lib/{pkgconfig,*.la}
