#!/usr/bin/env bash
# Works only while the sidecar beside it leads. Needs curl and jq. BELLWETHER_URL is the sidecar's.
url=${BELLWETHER_URL:-http://127.0.0.1:4040}
work() { echo "working with token $1"; sleep 1; }

# Without a leader the answer is 503, which has the index too.
ask() {
    read -r is_self until token index < <(curl -s -m "$2" "$url/leader$1" |
        jq -r 'select(.index) | "\(.is_self) \(.valid_until_boottime_ns) \(.leader.token) \(.index)"') && return
    is_self=false index=0
    sleep 1
}

# The answer may be outdated when it is read: work only before the deadline.
may_work() {
    # The first number is CLOCK_BOOTTIME in hundredths of a second, rounded down: so one is added.
    read -r up _ </proc/uptime
    (((10#${up/./} + 1) * 10000000 < until))
}

ask "" 2
while true; do
    while [[ $is_self == true ]]; do
        may_work && work "$token"
        ask "" 2
    done
    # Answers as soon as the state differs from that of the index, and after a minute in any case.
    ask "?index=$index&wait=1m" 90
done
