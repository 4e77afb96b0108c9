#!/usr/bin/env bash
# Packs tools/gpu-runner for a machine that has nothing but a driver: one tar.zst with the stripped binary, LLVM inside, the few libraries
# that it needs (the C library and its loader too: the machine's may be older), the test modules, and run.sh.
#
#   tools/dev/pack_gpu_runner.sh [OUT.tar.zst]        default build/gpu-runner.tar.zst
#   on the machine:  tar --zstd -xf gpu-runner.tar.zst; cd gpu-runner; ./run.sh
#
# BUILD: the build folder (default build/release). LIMIT_MB: no more than so many may come out (default 60).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}
out=${1:-build/gpu-runner.tar.zst}
limit=$((${LIMIT_MB:-60} << 20))

cmake --build "$build" --target gpu-runner-packed
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/gpu-runner
mkdir -p "$root/lib" "$root/tests/backends/control" "$root/tests/regress"

strip -o "$root/gpu-runner" "$build/bin/gpu-runner-packed"
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
cat > "$root/run.sh" <<'RUN'
#!/bin/sh
# Runs all checks and times, in 9 minutes at most; flags go to gpu-runner (--help shows them). results.md and results.json are written here.
here=$(cd "$(dirname "$0")" && pwd)
drivers=/usr/lib64:/usr/lib/x86_64-linux-gnu:/usr/local/nvidia/lib64:/usr/lib/wsl/lib
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$drivers" \
  "$here/gpu-runner" "--tests=$here/tests" "$@"
RUN
chmod +x "$root/run.sh"

mkdir -p "$(dirname "$out")"
tar -C "$stage" -cf - gpu-runner | zstd -q -10 -T0 -f -o "$out"
bytes=$(stat -c %s "$out")
printf '%s: %d.%d MB (%d MB unpacked)\n' "$out" $((bytes >> 20)) $(((bytes % (1 << 20)) * 10 >> 20)) "$(du -sm "$root" | cut -f1)"
if [ "$bytes" -gt "$limit" ]; then
  echo "$out: more than $((limit >> 20)) MB" >&2
  exit 1
fi
