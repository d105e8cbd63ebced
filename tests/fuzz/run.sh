#!/bin/sh
# run.sh TARGET SECONDS: one fuzzer, from the kept corpus and what earlier runs reached; tells in a line what came of it.
set -u
cd "$root" || exit 1
target=$1
work=build/fuzz-work/$target
found=build/fuzz-found/$target
mkdir -p "$work" "$found"
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
status=0
"build/fuzz/tests/fuzz/fuzz_$target" "$work" "tests/fuzz/corpus/$target" -max_total_time="$2" -max_len=16384 -timeout=25 \
    -rss_limit_mb=2048 -artifact_prefix="$found/" -print_final_stats=1 >"$work.log" 2>&1 || status=$?
executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work.log")
if [ "$status" -eq 0 ]; then
    printf '%-12s %12s executions, nothing found\n' "$target" "$executions"
else
    printf '%-12s %12s executions, then: %s (build/fuzz-work/%s.log)\n' "$target" "$executions" \
        "$(grep -m 1 -E 'not true|ERROR: |runtime error' "$work.log")" "$target"
    : >build/fuzz-failed
fi
