#!/usr/bin/env bash
# Runs every test program of a build folder and closes with one line of totals.
#   tests/run.sh BUILD_FOLDER [NAME ...]     names select programs: tests/run.sh build/… gguf net
# VOLTRON_RUNNER runs foreign programs (qemu); VOLTRON_BIN is where voltron-run lies.
set -u
out=$1; shift
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "$out"/tests/test_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  case $program in *.o|*.d) continue;; esac
  name=${program##*/test_}
  if [ $# -gt 0 ]; then case " $* " in *" $name "*) ;; *) continue;; esac; fi
  began=$SECONDS
  ${VOLTRON_RUNNER:-} "$program" >"$log" 2>&1
  code=$?
  took=$((SECONDS - began))
  ok=$(awk '/^\[  PASSED  \] [0-9]+ test/ { n += $4 } END { print n + 0 }' "$log")
  bad=$(awk '/^\[  FAILED  \] [0-9]+ test/ { n += $4 } END { print n + 0 }' "$log")
  skip=$(awk '/^\[  SKIPPED \] [0-9]+ test/ { n += $4 } END { print n + 0 }' "$log")
  # A crash leaves no summary: count it as one failure.
  if [ $code -ne 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  passed=$((passed + ${ok:-0})); failed=$((failed + bad)); skipped=$((skipped + ${skip:-0}))
  printf '%-28s %4d passed%s%s%s\n' "$name" "${ok:-0}" \
    "$([ "$bad" -gt 0 ] && echo ", $bad FAILED (exit $code)")" \
    "$([ "${skip:-0}" -gt 0 ] && echo ", $skip skipped")" \
    "$([ "$took" -ge 5 ] && echo ", $took s")"
  grep -h '^NOTICE' "$log" | sort -u
  if [ "$bad" -gt 0 ]; then sed 's/^/    /' "$log" | tail -n 60; fi
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
