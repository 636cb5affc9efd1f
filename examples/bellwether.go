// A client of the sidecar in one file, to copy: Go 1.18 or newer on Linux, without a dependency.
//
//	sidecar := NewBellwether("")                     // http://127.0.0.1:4040, or BELLWETHER_URL
//	sidecar.Leader()                                 // who leads, or nil
//	go sidecar.Follow(onElected, onLost)             // calls onElected(token) and onLost()
//	sidecar.IsLeader()                               // right before each side effect
//	sidecar.Token()                                  // the fencing token; 0 while this member does not lead
//	lock, err := sidecar.Lock("migrate", 5*time.Second)
//	defer lock.Release()                             // lock.Token; lock.IsHeld() right before each side effect
//
// Run it to see it at work: without arguments it works while its member leads, with `lock NAME` while it holds a lock.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// now reads CLOCK_BOOTTIME, which the sidecar and this process share. unix.ClockGettime of golang.org/x/sys does, too.
func now() time.Duration {
	const clockBoottime = 7
	var spec syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0)
	if failed != 0 {
		panic(failed)
	}
	return time.Duration(spec.Nano())
}

// lease is a token, and until when it counts.
type lease struct {
	Token    uint64
	Until    time.Duration `json:"valid_until_boottime_ns"`
	ValidFor int64         `json:"valid_for_ms"`
}

func (l *lease) left() time.Duration { return l.Until - now() }

func (l *lease) check() error {
	if l.left() > time.Duration(l.ValidFor+1)*time.Millisecond {
		return errors.New("the sidecar has another clock: it must run on this machine")
	}
	return nil
}

// Leader is the member that leads.
type Leader struct {
	ID      string
	Address string
	Labels  map[string]string
	Token   uint64
}

// Bellwether asks one sidecar. CommandToken is needed for locks where the sidecar has a token file.
type Bellwether struct {
	URL, CommandToken string
	mutex             sync.Mutex
	lease             lease
}

func NewBellwether(url string) *Bellwether {
	if url == "" {
		url = os.Getenv("BELLWETHER_URL")
	}
	if url == "" {
		url = "http://127.0.0.1:4040"
	}
	return &Bellwether{URL: url}
}

func (b *Bellwether) Leader() (*Leader, error) {
	answer, err := b.get("/leader", 2*time.Second)
	return answer.Leader, err
}

func (b *Bellwether) IsLeader() bool { return b.Token() != 0 }

func (b *Bellwether) Token() uint64 {
	if current := b.current(); current.left() > 0 {
		return current.Token
	}
	return 0
}

// Follow follows until the process ends. The callbacks must return soon: nothing is renewed meanwhile.
func (b *Bellwether) Follow(onElected func(token uint64), onLost func()) {
	var led, index uint64
	for {
		// While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
		current := b.current()
		left, wait, timeout, failed := current.left(), 60*time.Second, 65*time.Second, false
		if left > 0 {
			wait, timeout = left/2, left
		}
		if current.Token != 0 && left <= 0 {
			b.set(lease{}) // Ask again at once: the next lease need not be a change.
			index = 0
		} else if err := b.renew(&index, wait, timeout); err != nil {
			// The lease of the last answer still counts.
			log.Printf("no answer from the sidecar at %s: %v", b.URL, err)
			index, failed = 0, true
		}
		if token := b.Token(); token != led {
			if led != 0 {
				onLost()
			}
			if token != 0 {
				onElected(token)
			}
			led = token
		}
		if failed {
			pause := time.Second
			if current = b.current(); current.Token != 0 && current.left() < pause {
				pause = current.left()
			}
			time.Sleep(pause)
		}
	}
}

// Lock waits until the lock is held; without a limit if wait is negative.
func (b *Bellwether) Lock(name string, wait time.Duration) (*Lock, error) {
	ctx, cancel := context.WithCancel(context.Background())
	path := b.URL + "/locks/" + name
	if wait >= 0 {
		path += fmt.Sprintf("?wait=%dms", wait.Milliseconds())
		defer time.AfterFunc(wait+5*time.Second, cancel).Stop()
	}
	request, err := http.NewRequestWithContext(ctx, "POST", path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Bellwether", "1")
	if b.CommandToken != "" {
		request.Header.Set("Authorization", "Bearer "+b.CommandToken)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	lock := &Lock{release: cancel}
	decided := make(chan error, 1)
	go lock.read(answer, decided)
	if err := <-decided; err != nil {
		lock.Release()
		return nil, err
	}
	return lock, nil
}

type answer struct {
	lease
	Leader *Leader
	IsSelf bool    `json:"is_self"`
	Index  *uint64 `json:"index"`
}

func (b *Bellwether) get(path string, timeout time.Duration) (result answer, err error) {
	client := http.Client{Timeout: timeout}
	reply, err := client.Get(b.URL + path)
	if err != nil {
		return result, err
	}
	defer reply.Body.Close()
	// A 503 has a body too: no leader is known.
	err = json.NewDecoder(reply.Body).Decode(&result)
	return result, err
}

func (b *Bellwether) renew(index *uint64, wait, timeout time.Duration) error {
	answer, err := b.get(fmt.Sprintf("/leader?index=%d&wait=%dms", *index, wait.Milliseconds()), timeout)
	if err != nil {
		return err
	}
	if !answer.IsSelf || answer.Leader == nil {
		b.set(lease{})
	} else if err := answer.check(); err != nil {
		return err
	} else {
		answer.lease.Token = answer.Leader.Token
		b.set(answer.lease)
	}
	if answer.Index == nil {
		return errors.New("the member has not joined yet")
	}
	*index = *answer.Index
	return nil
}

func (b *Bellwether) current() lease {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.lease
}

func (b *Bellwether) set(next lease) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.lease = next
}

// Lock is held until it is released, or until the lease ends.
type Lock struct {
	Token   uint64
	mutex   sync.Mutex
	lease   lease
	isOver  bool
	release func()
}

func (l *Lock) IsHeld() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return !l.isOver && l.lease.left() > 0
}

// Release gives the lock back: it ends with the connection.
func (l *Lock) Release() {
	l.mutex.Lock()
	l.isOver = true
	l.mutex.Unlock()
	l.release()
}

func (l *Lock) read(answer *http.Response, decided chan<- error) {
	defer answer.Body.Close()
	defer l.Release() // Without the connection it is not held.
	event, failure, isHeld := "", fmt.Errorf("the sidecar answers %s", answer.Status), false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "event: ") {
			event = line[len("event: "):]
		}
		if !strings.HasPrefix(line, "data: ") || event == "waiting" {
			continue
		}
		var data struct {
			lease
			Why string
		}
		if failure = json.Unmarshal([]byte(line[len("data: "):]), &data); failure != nil {
			break
		}
		if event != "held" && event != "renewed" {
			failure = errors.New(data.Why)
			break
		}
		if failure = data.check(); failure != nil {
			break
		}
		l.mutex.Lock()
		l.lease = data.lease
		l.mutex.Unlock()
		if !isHeld {
			l.Token = data.Token
			decided <- nil
		}
		isHeld = true
		failure = errors.New("the sidecar has closed the connection")
	}
	if !isHeld {
		decided <- failure
	}
}

func work(token uint64) {
	fmt.Println("working with token", token)
	time.Sleep(250 * time.Millisecond)
}

func main() {
	sidecar := NewBellwether("")
	if len(os.Args) > 2 && os.Args[1] == "lock" {
		lock, err := sidecar.Lock(os.Args[2], -1)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			io.Copy(io.Discard, os.Stdin)
			lock.Release()
		}()
		for lock.IsHeld() {
			work(lock.Token)
		}
		fmt.Println("no longer held")
		return
	}
	elected := make(chan uint64, 1)
	go sidecar.Follow(func(token uint64) { elected <- token }, func() { fmt.Fprintln(os.Stderr, "no longer leading") })
	for range elected {
		for token := sidecar.Token(); token != 0; token = sidecar.Token() {
			work(token)
		}
	}
}
