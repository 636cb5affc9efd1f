// Works only while the sidecar beside it leads. BELLWETHER is the sidecar's URL, such as http://127.0.0.1:4040.
//
// It does not check the deadline, since Go's standard library does not read CLOCK_BOOTTIME;
// unix.ClockGettime of golang.org/x/sys does.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

var url = os.Getenv("BELLWETHER")

type state struct {
	Leader struct{ Token uint64 }
	IsSelf bool `json:"is_self"`
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

func work(token uint64) {
	fmt.Println("working with token", token)
	time.Sleep(time.Second)
}

func main() {
	is := ask("", 2*time.Second)
	for {
		// The answer is news, and old when it is read: permission is only that the deadline has not passed.
		for ; is.IsSelf; is = ask("", 2*time.Second) {
			work(is.Leader.Token)
		}
		// Answers as soon as the state differs from that of the index, and after a minute in any case.
		is = ask(fmt.Sprintf("?index=%d&wait=1m", is.Index), 90*time.Second)
	}
}
