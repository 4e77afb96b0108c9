#!/usr/bin/env bash
# Packs tools/gpu-runner and hlo-fuzz for a machine that has nothing but a driver: one tar.zst with the stripped binaries, LLVM inside, the
# few libraries that they need (the C library and its loader too: the machine's may be older), the test modules, run.sh and fuzz.sh.
#
#   tools/dev/pack_gpu_runner.sh [OUT.tar.zst]        default build/gpu-runner.tar.zst
#   on the machine:  tar --zstd -xf gpu-runner.tar.zst; cd gpu-runner; ./run.sh; ./fuzz.sh --seconds=60
#
# BUILD: the build folder (default build/release). LIMIT_MB: no more than so many may come out (default 60).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}
out=${1:-build/gpu-runner.tar.zst}
limit=$((${LIMIT_MB:-60} << 20))

cmake --build "$build" --target gpu-runner-packed hlo-fuzz-packed
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/gpu-runner
mkdir -p "$root/lib" "$root/tests/backends/control" "$root/tests/regress"

for tool in gpu-runner hlo-fuzz; do strip -o "$root/$tool" "$build/bin/$tool-packed"; done
ldd "$build/bin/gpu-runner-packed" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' | while read -r library; do
  cp -L "$library" "$root/lib/"
done
# What the driver's library asks for besides: of the same C library.
libc=$(dirname "$(ldd "$build/bin/gpu-runner-packed" | awk '$1 == "libc.so.6" {print $3}')")
for library in libdl.so.2 libpthread.so.0 librt.so.1; do cp -L "$libc/$library" "$root/lib/"; done

cp tests/backends/*.hlo "$root/tests/backends/"
cp tests/backends/control/*.hlo "$root/tests/backends/control/"
cp tests/regress/*.hlo "$root/tests/regress/"
git rev-parse HEAD > "$root/commit" 2>/dev/null || true
# NAME COMMENT TOOL FLAGS: a script that starts the tool; what it is given goes behind the flags.
script() {
  cat > "$root/$1" <<RUN
#!/bin/sh
# $2
here=\$(cd "\$(dirname "\$0")" && pwd)
drivers=/usr/lib64:/usr/lib/x86_64-linux-gnu:/usr/local/nvidia/lib64:/usr/lib/wsl/lib
exec "\$here/lib/ld-linux-x86-64.so.2" --library-path "\$here/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}:\$drivers" \\
  "\$here/$3" $4 "\$@"
RUN
  chmod +x "$root/$1"
}
script run.sh 'Runs all checks and times, in 9 minutes at most; --help shows more flags. results.md and results.json are written here.' \
  gpu-runner '"--tests=$here/tests"'
script fuzz.sh 'Random modules on the GPU against the evaluator; --help shows more flags. What fails is kept under found/.' \
  hlo-fuzz '--target=gpu "--save=$here/found"'
mkdir -p "$(dirname "$out")"
tar -C "$stage" -cf - gpu-runner | zstd -q -10 -T0 -f -o "$out"
bytes=$(stat -c %s "$out")
printf '%s: %d.%d MB (%d MB unpacked)\n' "$out" $((bytes >> 20)) $(((bytes % (1 << 20)) * 10 >> 20)) "$(du -sm "$root" | cut -f1)"
if [ "$bytes" -gt "$limit" ]; then
  echo "$out: more than $((limit >> 20)) MB" >&2
  exit 1
fi
