#!/usr/bin/env bash
# Builds the worker with its GPU engine, the engine's tests and its benchmark with the nvcc of this
# machine and runs them: for a GPU machine that has a compiler but not Debian's libraries.
#
#   worker/gpu/check.sh bundle FOLDER    puts all that is needed into FOLDER; needs no GPU
#   worker/gpu/check.sh build            builds into build/gpu; MUSTER_ARCHITECTURES chooses GPUs
#   worker/gpu/check.sh test [FILTER]    builds and runs the tests that these GPUs are enough for,
#                                        or those that match
#   worker/gpu/check.sh sanitize         the kernels' tests under compute-sanitizer
#   worker/gpu/check.sh run COMMAND...   any command, with CUDA's libraries on its path
#
# In a bundle, run it as ./worker/gpu/check.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=build/gpu

# generated: the folder of a build that has the sources that CMake makes; the tree itself, in a
# bundle.
generated() {
  local folder
  for folder in . build build/*; do
    [[ ! -e $folder/worker/diagnose/causes_text.cc ]] || { echo "$folder" && return; }
  done
  echo "check.sh: no build has been configured here; run ./run build muster-worker" >&2
  return 1
}

bundle() {
  local to=$1 toolkit made
  made=$(generated)
  toolkit=$(worker/gpu/toolkit.sh)
  mkdir -p "$to/deps/include" "$to/deps/lib"
  cp -r worker "$to/"
  cp "$made"/worker/diagnose/{cause_id.h,causes_text.cc} "$to/worker/diagnose/"
  cp -r /usr/include/{absl,fmt,gtest,gmock,nlohmann,openssl,rdma,yaml-cpp} "$to/deps/include/"
  cp /usr/include/*-linux-gnu/openssl/* "$to/deps/include/openssl/"
  cp -r "$toolkit"/include/{cublas,cudnn,nccl,nvrtc}* "$to/deps/include/"
  cp /usr/lib/*/libabsl_*.a /usr/lib/*/lib{crypto,gtest,gtest_main,gmock,yaml-cpp}.a "$to/deps/lib/"
}

build() {
  local nvcc source made
  made=$(generated)
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  local flags=(-std=c++20 -O2 -I. "-I$made" -DFMT_HEADER_ONLY)
  local includes=(-isystem "$cuda/include") libraries=('-Wl,--start-group')
  if [[ -d deps ]]; then
    includes=(-isystem deps/include "${includes[@]}")
    libraries+=(deps/lib/libabsl_*.a deps/lib/lib{crypto,yaml-cpp}.a)
  else
    libraries+=(/usr/lib/*/libabsl_*.a /usr/lib/*/lib{crypto,yaml-cpp}.a)
  fi
  libraries+=('-Wl,--end-group' "$cuda/lib64/libcudart_static.a" -ldl -lrt -lpthread)
  local gencode=() architecture
  for architecture in ${MUSTER_ARCHITECTURES:-90}; do
    gencode+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
  done
  mkdir -p "$out"
  local library=() tests=() all=()
  for source in worker/{model,communicator,checkpoint,data,training,launch,rendezvous}/*.cc \
    worker/{preflight,diagnose,program}/*.cc worker/gpu/*.cc worker/gpu/kernels/*.{cc,cu} \
    worker/bench/gpu_step.cc "$made/worker/diagnose/causes_text.cc"; do
    case $source in
      worker/program/no_gpu_engine.cc | worker/preflight/made_up_nvml.cc) continue ;;
      ./worker/*) continue ;; # in a bundle it is among the others
      worker/gpu/*_test.cc) tests+=("$out/${source//\//-}.o") ;;
      worker/bench/* | worker/program/main.cc) ;;
      *_test.cc) continue ;;
      *) library+=("$out/${source//\//-}.o") ;;
    esac
    all+=("$source")
  done
  # Longest first.
  printf '%s\n' worker/gpu/cudnn_attention.cc "${all[@]}" | awk '!seen[$0]++' |
    compile_all "$nvcc" "${flags[*]} ${includes[*]}" "${gencode[*]}"
  g++ -o "$out/gpu_tests" "${tests[@]}" "${library[@]}" -Ldeps/lib -lgtest_main -lgmock -lgtest \
    "${libraries[@]}"
  g++ -o "$out/gpu_step" "$out/worker-bench-gpu_step.cc.o" "${library[@]}" "${libraries[@]}"
  g++ -o "$out/muster-worker" "$out/worker-program-main.cc.o" "${library[@]}" "${libraries[@]}"
}

# compile_all NVCC FLAGS GENCODE: compiles the sources on standard input that have no object yet.
compile_all() {
  # shellcheck disable=SC2016 # for the shell that it starts
  local script='
    object=build/gpu/${1//\//-}.o
    if [[ $object -nt $1 ]]; then exit; fi
    if [[ $1 == *.cu ]]; then
      "$2" $3 -O3 $4 -c "$1" -o "$object"
    else
      g++ $3 "-DMUSTER_VERSION=\"check\"" -c "$1" -o "$object"
    fi || { echo "check.sh: $1 does not compile" >&2; exit 1; }'
  xargs -P "$(nproc)" -I{} bash -c "$script" - {} "$1" "$2" "$3"
}

libraries_on_path() {
  local packages folder
  for packages in $(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null); do
    for folder in "$packages"/nvidia/*/lib; do
      LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
  done
  export LD_LIBRARY_PATH
}

# test_in_shards FILTER: a process for each core, up to 12, because most of the time goes into what
# the GPU is compared with.
test_in_shards() {
  local shards index failed='' processes=()
  shards=$(($(nproc) < 12 ? $(nproc) : 12))
  for ((index = 0; index < shards; ++index)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$index "$out/gpu_tests" --gtest_brief=1 \
      --gtest_filter="$1" >"$out/tests.$index.log" 2>&1 &
    processes+=($!)
  done
  for ((index = 0; index < shards; ++index)); do
    wait "${processes[index]}" || failed+=" $index"
    cat "$out/tests.$index.log"
  done
  [[ -z $failed ]] || { echo "check.sh: tests of shards$failed failed" >&2; return 1; }
}

case ${1-} in
  bundle) bundle "$2" ;;
  build) build ;;
  test)
    build
    libraries_on_path
    if [[ $# -gt 1 ]]; then
      "$out/gpu_tests" --gtest_brief=1 --gtest_filter="$2"
    else
      several='*Gpus*:ShardedGpuEngine*:Nccl*'
      test_in_shards "-$several"
      # These fail where there is one, and need theirs for themselves.
      if [[ $(nvidia-smi --list-gpus | wc -l) -gt 1 ]]; then
        "$out/gpu_tests" --gtest_brief=1 --gtest_filter="$several"
      fi
    fi
    ;;
  sanitize)
    build
    libraries_on_path
    failed=''
    declare -A running=()
    for tool in memcheck racecheck initcheck; do
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$out/gpu_tests" --gtest_brief=1 \
        --gtest_filter='-*GpuEngine*:*Gpus*:Nccl*:*Cudnn*:ProductsOf*' >"$out/$tool.log" 2>&1 &
      running[$tool]=$!
    done
    for tool in "${!running[@]}"; do
      wait "${running[$tool]}" || failed+=" $tool"
      echo "check.sh: $tool"
      tail -n 30 "$out/$tool.log"
    done
    [[ -z $failed ]] || { echo "check.sh:$failed found errors" >&2; exit 1; }
    ;;
  run)
    libraries_on_path
    shift
    "$@"
    ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | head -n -1
    exit 2
    ;;
esac
