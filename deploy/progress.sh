#!/usr/bin/env bash
# Runs a command that may be silent for minutes, and says every 15 s that it still runs.
set -u
"$@" &
pid=$!
start=$SECONDS
while kill -0 "$pid" 2>/dev/null; do
  for _ in $(seq 30); do
    kill -0 "$pid" 2>/dev/null || break 2
    sleep 0.5
  done
  echo "   still building, $((SECONDS - start)) s so far"
done
wait "$pid"
