#!/usr/bin/env bash
# Runs every test program of a build folder and closes with one line of totals.
#   tests/run.sh BUILD_FOLDER [NAME ...]     names select programs: tests/run.sh build/… gguf net
# VOLTRON_RUNNER runs foreign programs (qemu); VOLTRON_BIN is where voltron-run lies; TEST_JOBS
# programs run at a time (1).
set -u
out=$1; shift
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What a program's own totals say under a heading: count "PASSED" LOG
count() {
  awk -v head="$1" '$1 == "[" && $2 == head && $3 == "]" && $5 ~ /^test/ { n += $4 }
                    END { print n + 0 }' "$2"
}

# Leaves NAME.report, and then NAME.totals: passed, failed, skipped.
run_one() {
  local program=$1 name=$2 log="$work/$2.log" began=$SECONDS code took ok bad skip
  # What runs in the background of a script ignores Ctrl-C; the programs test what it does.
  env --default-signal=INT,QUIT ${VOLTRON_RUNNER:-} "$program" >"$log" 2>&1
  code=$?
  took=$((SECONDS - began))
  ok=$(count PASSED "$log") bad=$(count FAILED "$log") skip=$(count SKIPPED "$log")
  # A crash leaves no summary: count it as one failure.
  if [ $code -ne 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  {
    printf '%-28s %4d passed%s%s%s\n' "$name" "$ok" \
      "$([ "$bad" -gt 0 ] && echo ", $bad FAILED (exit $code)")" \
      "$([ "$skip" -gt 0 ] && echo ", $skip skipped")" \
      "$([ "$took" -ge 5 ] && echo ", $took s")"
    grep -h '^NOTICE' "$log" | sort -u
    if [ "$bad" -gt 0 ]; then sed 's/^/    /' "$log" | tail -n 60; fi
  } >"$work/$name.report"
  echo "$ok $bad $skip" >"$work/$name.part" && mv "$work/$name.part" "$work/$name.totals"
}

names=()
shown=0 passed=0 failed=0 skipped=0
# Reports come in the order in which the programs were started.
show_finished() {
  while [ $shown -lt ${#names[@]} ] && [ -f "$work/${names[$shown]}.totals" ]; do
    cat "$work/${names[$shown]}.report"
    read -r ok bad skip <"$work/${names[$shown]}.totals"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    shown=$((shown + 1))
  done
}

for program in "$out"/tests/test_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  case $program in *.o|*.d) continue;; esac
  name=${program##*/test_}
  if [ $# -gt 0 ]; then case " $* " in *" $name "*) ;; *) continue;; esac; fi
  while [ "$(jobs -rp | wc -l)" -ge "${TEST_JOBS:-1}" ]; do wait -n; done
  show_finished
  names+=("$name")
  run_one "$program" "$name" &
done
wait
show_finished
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ] && [ $shown = ${#names[@]} ]
