#!/usr/bin/env bash
# fabric.sh CUDA FOLDER: installs libfabric with its EFA provider and aws-ofi-nccl, which NCCL moves
# GPU memory between EFA nodes with, into FOLDER, from what sources.txt beside this script names. CUDA
# has its runtime's headers and libraries.
set -euo pipefail
cuda=$1
folder=$2
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
work=$(mktemp -d)

need() {
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
}

# fetch FILE WHERE: into the current folder.
fetch() {
  case $2 in
    https://*) curl --fail --location --silent --show-error --output "$1" "$2" ;;
    *) apt-get source --download-only --only-source "$2" ;;
  esac
}

# unpack NAME: the source whose file begins with NAME, into $work/NAME.
unpack() {
  local file sha where
  read -r file sha where < <(grep "^$1" "$here/sources.txt")
  mkdir "$work/$1"
  cd "$work/$1"
  if [[ -e $here/sources/$file ]]; then
    cp "$here/sources/$file" .
  else
    fetch "$file" "$where" || true
  fi
  if ! sha256sum --check <<<"$sha  $file"; then
    echo "fabric.sh: $file (SHA-256 $sha) can't be had from $where; put it into deploy/worker/sources" >&2
    exit 1
  fi
  tar --extract --file "$file" --strip-components 1
}

# Of the same Debian, whose signature says what its source packages are.
if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
  sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >/etc/apt/sources.list.d/source.sources
else
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
fi
apt-get update
need autoconf automake ca-certificates curl dpkg-dev g++ libhwloc-dev libibverbs-dev libtool make xz-utils

unpack libfabric
unpack aws-ofi-nccl

cd "$work/libfabric"
./autogen.sh
# Where the node has no CUDA, it is used without.
./configure --prefix="$folder" --enable-efa --disable-static --with-cuda="$cuda" --enable-cuda-dlopen \
  --disable-opx --disable-psm2 --disable-psm3 --disable-ucx --disable-usnic --disable-verbs
make -j"$(nproc)" install

cd "$work/aws-ofi-nccl"
# Where configure looks for it.
ln -sfn lib "$cuda/lib64"
# Its own release archives have this; those that are made of a tag don't.
[[ -e .release_version ]] ||
  sed -n 's/^aws-ofi-nccl-\(.*\)\.tar\.gz .*/\1/p' "$here/sources.txt" >.release_version
./autogen.sh
./configure --prefix="$folder" --with-libfabric="$folder" --with-cuda="$cuda" \
  --enable-cudart-dynamic --disable-tests --enable-platform-aws
make -j"$(nproc)" install

# What only compilers need.
rm -rf "${folder:?}"/{bin,include} "$folder"/lib/{pkgconfig,*.la,*.a} "$folder"/share/man
