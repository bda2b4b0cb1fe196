# Sourced by tools/quickstart and tools/test: named stages with their times, and the build environment.
# A failed stage shows the end of its log and ends the script with its exit code.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
mkdir -p "$logs"
started=$SECONDS
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
jobs=$(nproc)

# stage NAME COMMAND…: quiet on success; its output goes to build/logs/NAME.log
stage() {
  local name=$1 begin=$SECONDS log rc=0
  shift
  log=$logs/$(echo "$name" | tr ' /' '--').log
  printf '%-34s' "$name …"
  "$@" >"$log" 2>&1 </dev/null || rc=$?
  if [ $rc -ne 0 ]; then
    printf 'FAILED after %d s (exit code %d); the end of %s:\n' $((SECONDS - begin)) $rc "${log#"$root"/}"
    tail -n 40 "$log"
    exit $rc
  fi
  printf '%4d s\n' $((SECONDS - begin))
}

# shown NAME COMMAND…: the same, with the output on the console as it comes
shown() {
  local name=$1 begin=$SECONDS rc=0
  shift
  printf -- '--- %s\n' "$name"
  "$@" </dev/null || rc=$?
  printf -- '--- %s: %d s\n' "$name" $((SECONDS - begin))
  return $rc
}

# configure PRESET: cmake takes a second when nothing changed
configure() { cmake -S "$root" -B "$root/build/$1" --preset "$1"; }
build() { local preset=$1; shift; cmake --build "$root/build/$preset" -j "$jobs" "$@"; }
