#!/usr/bin/env bash
# Works only while the sidecar beside it leads. Needs curl and jq. BELLWETHER is the sidecar's URL.
url=${BELLWETHER:-http://127.0.0.1:4040}
work() { echo "working with token $1"; sleep 1; }

while true; do
    while is=$(curl -sf -m 2 "$url/is-leader"); do
        # The first number is CLOCK_BOOTTIME in hundredths of a second, rounded down: so one is added.
        read -r up _ </proc/uptime
        (((10#${up/./} + 1) * 10000000 < $(jq .valid_until_boottime_ns <<<"$is"))) || continue
        work "$(jq .token <<<"$is")"
    done
    # Answers as soon as the state differs from that of the index, and after a minute in any case.
    state=$(curl -sf -m 90 "$url/leader?index=${index:-0}&wait=1m") || sleep 1
    index=$(jq .index <<<"$state")
done
