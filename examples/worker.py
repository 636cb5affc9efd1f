#!/usr/bin/env python3
# Works only while the sidecar beside it leads. BELLWETHER is the sidecar's URL.
import http.client, json, os, time, urllib.request

url = os.environ.get("BELLWETHER", "http://127.0.0.1:4040")

def ask(query, timeout):
    try:
        with urllib.request.urlopen(f"{url}/leader{query}", timeout=timeout) as answer:
            return json.load(answer)
    except (OSError, http.client.HTTPException):
        time.sleep(1)
        return {"is_self": False, "index": 0}

def work(token):
    print("working with token", token, flush=True)
    time.sleep(1)

def leads(state):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return state["is_self"] and now < state["valid_until_boottime_ns"]

state = ask("", 2)
while True:
    while leads(state):
        work(state["leader"]["token"])
        state = ask("", 2)
    # Answers as soon as the state differs from that of the index, and after a minute in any case.
    state = ask(f"?index={state['index']}&wait=1m", 90)
