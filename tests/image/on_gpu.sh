#!/usr/bin/env bash
# The worker's image on a machine with a GPU that has the same libraries of NVIDIA's, but neither the
# image nor a container engine.
#
#   tests/image/on_gpu.sh bundle IMAGE FOLDER   IMAGE's files without those libraries, into FOLDER
#   FOLDER/on_gpu.sh                            there, as root; prints "N passed, N failed"
#
# The training must be as fast as bench/gpu_step, and what NCCL's plugin chooses on made-up EFA nodes
# must be right with the GPU's own memory.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ ${1:-} == bundle ]]; then
  set -e
  image=$2 folder=$3
  cd "$here/../.."
  mkdir -p "$folder"
  store=${XDG_CACHE_HOME:-$HOME/.cache}/muster/images
  export BUILDAH_ISOLATION=chroot
  buildah() { command buildah --root "$store/root" --runroot "$store/run" "$@"; }
  container=$(buildah from --pull-never "$image")
  root=$(buildah mount "$container")
  (cd "$root/opt/cuda/lib" && sha256sum -- *.so.*) >"$folder/libraries.sha256"
  tar --create --xz --file "$folder/root.tar.xz" --directory "$root" --exclude './opt/cuda/lib/*' \
    --exclude './usr/share/*' --exclude './usr/lib/x86_64-linux-gnu/perl*' --exclude './var/*' .
  buildah rm "$container" >/dev/null
  clang++-19 -std=c++20 -shared -fPIC -static-libstdc++ -o "$folder/libibverbs.so.1" \
    -Wl,--version-script=tests/image/efa/made_up_verbs.map tests/image/efa/made_up_verbs.cc
  strip --strip-all -o "$folder/gpu_step" build/cuda/gpu_step
  cp tests/image/on_gpu.sh tests/image/efa/made_up_node.sh "$folder/"
  du --summarize --human-readable "$folder"
  exit
fi

passed=0
failed=0
# check NAME COMMAND...: one case, with what it says.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "passed: $name"
    passed=$((passed + 1))
  else
    echo "FAILED: $name"
    failed=$((failed + 1))
  fi
}

root=$(mktemp --directory) # with the machine's devices in it soon: not to be removed
nodes=$(mktemp --directory)
chmod 755 "$root" "$nodes"
mkdir -p "$root"/{driver,efa} "$root/opt/cuda/lib"
# By python3, which is there; xz need not be.
python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' \
  "$here/root.tar.xz" | tar --extract --directory "$root" || exit
# shellcheck source=tests/image/efa/made_up_node.sh
. "$here/made_up_node.sh"
cp "$here/libibverbs.so.1" "$root/efa/"
ln -s libibverbs.so.1 "$root/efa/libefa.so.1"
made_up_node "$nodes"/p4d p4d.24xlarge 4
made_up_node "$nodes"/p5 p5.48xlarge 32
made_up_node "$nodes"/without p5.48xlarge 0

# This machine's libraries, in the place of the image's.
packages=$(python3 -c 'import site; print(*site.getsitepackages())')
same_libraries() {
  local sha name found differ=0
  while read -r sha name; do
    # shellcheck disable=SC2086 # folders
    found=$(find $packages /usr/local/cuda*/ -name "$name" 2>/dev/null | head -n 1)
    if [[ -z $found ]]; then
      echo "not on this machine: $name"
      differ=1
      continue
    fi
    cp --dereference "$found" "$root/opt/cuda/lib/$name"
    sha256sum --check --status <<<"$sha  $root/opt/cuda/lib/$name" && continue
    echo "another one than the image's: $found"
    differ=1
  done <"$here/libraries.sha256"
  ln -s libcudart.so.13 "$root/opt/cuda/lib/libcudart.so"
  return $differ
}
check "this machine has the image's libraries" same_libraries

# The driver's, as the container toolkit brings them.
for name in libcuda.so.1 libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4 libnvidia-gpucomp.so; do
  file=$(ldconfig -p | sed -n "s|.*$name.* => ||p" | head -n 1)
  [[ -z $file ]] || cp --dereference "$file" "$root/driver/"
done
mkdir -p "$root"/{dev,proc,sys,tmp}
mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc" || mount --rbind /proc "$root/proc"
chroot "$root" ldconfig
inside() { chroot "$root" /usr/bin/env LD_LIBRARY_PATH=/driver NCCL_NVLS_ENABLE=0 HOME=/tmp "$@"; }
program=/usr/local/bin/muster-worker

check "its preflight finds the GPU" inside $program preflight --gpus=1

head --bytes 20M <(yes 'a gang starts when all of it can start') >"$root/tmp/text"
inside $program convert --output=/tmp/tokens /tmp/text
trains() {
  inside $program train --model=gpt2 --data=/tmp/tokens --batch=64 --micro-batch=64 --steps=160 \
    --report-every=10 --engine=gpu --events=/tmp/events >"$root/tmp/said" 2>&1 &
  local running=$! status
  sleep 45
  echo "libraries that it has loaded:"
  cat /proc/[0-9]*/maps 2>/dev/null | sed -n 's|.* \(/.*\.so[.0-9]*\)$|\1|p' | grep -E 'cuda/lib|driver|fabric' | sort -u
  wait $running
  status=$?
  tail -n 4 "$root/tmp/said"
  return $status
}
check "it trains GPT-2" trains
as_fast_as_gpu_step() {
  LD_LIBRARY_PATH=$root/opt/cuda/lib "$here/gpu_step" --model=gpt2 --sequences=64 --steps=100 \
    --data="$root/tmp/tokens" >/tmp/gpu_step.json || return
  python3 - "$root/tmp/events" <<'EOF'
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
image = statistics.median(step["tokens_per_second"] for step in steps
                          if step["event"] == "step" and step["step"] > 60)
alone = json.load(open("/tmp/gpu_step.json"))["tokens_per_second"]
print(f"{image:.0f} tokens/s, gpu_step {alone:.0f}: {image / alone:.4f}")
sys.exit(image < 0.99 * alone)
EOF
}
check "as fast as gpu_step, within 1 %" as_fast_as_gpu_step

# chooses STATUS WORDS NODE [VARIABLE=VALUE...]: with the GPU's own memory.
chooses() {
  local status=0
  on_made_up_node "$nodes/$3" "$root" LD_LIBRARY_PATH=/driver:/efa "${@:4}" $program fabric \
    >/tmp/chosen 2>&1 || status=$?
  cat /tmp/chosen
  ((status == $1)) && grep -qE "^plugin     libnccl-net.so: $2" /tmp/chosen
}
check "p4d: send and receive over EFA, with GPU memory" \
  chooses 0 'protocol SENDRECV on 4 devices of provider efa, with GPU memory' p4d
check "p5: RDMA over EFA, with GPU memory" \
  chooses 0 'protocol RDMA on 8 devices of provider efa, with GPU memory' p5 MADE_UP_EFA_WRITE=1
check "p5 whose devices don't write: refused" chooses 78 "doesn't start: .*FI_OPT_EFA_EMULATED_WRITE" p5
check "no EFA device: refused" chooses 78 "doesn't start: .*Failed to initialize rdma protocol" without
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
