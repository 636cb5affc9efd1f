#!/usr/bin/env python3
# Works only while the sidecar beside it leads. BELLWETHER is the sidecar's URL.
import http.client, json, os, time, urllib.request

url = os.environ.get("BELLWETHER", "http://127.0.0.1:4040")

# Raises nothing for 503, the answer without a leader: it has the index too.
web = urllib.request.OpenerDirector()
web.add_handler(urllib.request.HTTPHandler())

def ask(query, timeout):
    try:
        with web.open(f"{url}/leader{query}", timeout=timeout) as answer:
            state = json.load(answer)
            return {"is_self": False, "index": state["index"]} | state
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        time.sleep(1)
        return {"is_self": False, "index": 0}

def work(token):
    print("working with token", token, flush=True)
    time.sleep(1)

# The answer may be outdated when it is read: work only before the deadline.
def may_work(state):
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) < state["valid_until_boottime_ns"]

state = ask("", 2)
while True:
    while state["is_self"]:
        if may_work(state):
            work(state["leader"]["token"])
        state = ask("", 2)
    # Answers as soon as the state differs from that of the index, and after a minute in any case.
    state = ask(f"?index={state['index']}&wait=1m", 90)
