// Works only while the sidecar beside it leads. BELLWETHER is the sidecar's URL.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

var url = "http://127.0.0.1:4040"

type state struct {
	Leader struct{ Token uint64 }
	IsSelf bool   `json:"is_self"`
	Until  uint64 `json:"valid_until_boottime_ns"`
	Index  uint64
}

func ask(query string, timeout time.Duration) (answer state) {
	client := http.Client{Timeout: timeout}
	if reply, err := client.Get(url + "/leader" + query); err == nil {
		defer reply.Body.Close()
		// Without a leader the answer is 503, which has the index too.
		if json.NewDecoder(reply.Body).Decode(&answer) == nil && answer.Index != 0 {
			return answer
		}
	}
	time.Sleep(time.Second)
	return state{}
}

// The answer may be outdated when it is read: work only before the deadline.
func mayWork(until uint64) bool {
	// The first number is CLOCK_BOOTTIME in hundredths of a second, rounded down: so one is added. Without a dependency;
	// unix.ClockGettime of golang.org/x/sys reads it too.
	var seconds, hundredths uint64
	uptime, err := os.ReadFile("/proc/uptime")
	if err == nil {
		_, err = fmt.Sscanf(string(uptime), "%d.%d", &seconds, &hundredths)
	}
	return err == nil && (seconds*100+hundredths+1)*10_000_000 < until
}

func work(token uint64) {
	fmt.Println("working with token", token)
	time.Sleep(time.Second)
}

func main() {
	if given := os.Getenv("BELLWETHER"); given != "" {
		url = given
	}
	is := ask("", 2*time.Second)
	for {
		for ; is.IsSelf; is = ask("", 2*time.Second) {
			if mayWork(is.Until) {
				work(is.Leader.Token)
			}
		}
		// Answers as soon as the state differs from that of the index, and after a minute in any case.
		is = ask(fmt.Sprintf("?index=%d&wait=1m", is.Index), 90*time.Second)
	}
}
