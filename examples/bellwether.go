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
// The store keeps the tokens of the election, and of each lock, in a column of its own: a leader's token dates from its joining, so
// it may be smaller than that of an earlier lock.
//
// Run it to see it at work: without arguments it works while its member leads, with `lock NAME [SECONDS]` while it holds a lock,
// for which it waits so long, and gives that back when its standard input ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
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

// lease is a token, until when it counts, and for how long it did when the sidecar answered.
type lease struct {
	Token    uint64
	Until    time.Duration `json:"valid_until_boottime_ns"`
	ValidFor int64         `json:"valid_for_ms"`
}

func (l *lease) left() time.Duration { return l.Until - now() }

// interval returns how often to renew it.
func (l *lease) interval() time.Duration { return time.Duration(l.ValidFor) * time.Millisecond / 4 }

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

// ErrTimeout says that a lock was not got in time.
var ErrTimeout = errors.New("the lock was not got in time")

// AnswerError is an answer of the sidecar that is none to what was asked.
type AnswerError struct {
	Request string
	Status  int
	Detail  string
}

func (e *AnswerError) Error() string {
	detail := e.Detail
	if detail == "" {
		detail = "is that a sidecar?"
	}
	return fmt.Sprintf("%s is answered with %d: %s", e.Request, e.Status, detail)
}

// Bellwether asks one sidecar. CommandToken is needed for locks where the sidecar has a token file.
type Bellwether struct {
	URL, CommandToken string
	transport         http.RoundTripper
	mutex             sync.Mutex
	lease             lease
}

var (
	address  = regexp.MustCompile(`^(http://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?/?$`)
	port     = regexp.MustCompile(`^[0-9]+$`)
	lockName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// NewBellwether takes http://HOST:PORT, HOST:PORT, HOST, :PORT, PORT or unix:PATH, and panics at anything else.
func NewBellwether(url string) *Bellwether {
	if url == "" {
		url = os.Getenv("BELLWETHER_URL")
	}
	if url == "" {
		url = "http://127.0.0.1:4040"
	}
	if strings.HasPrefix(url, "unix:/") {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", url[len("unix:"):])
		}
		return &Bellwether{URL: "http://localhost", transport: &http.Transport{DialContext: dial}}
	}
	parts := address.FindStringSubmatch(port.ReplaceAllString(url, ":$0"))
	if parts == nil || parts[2] == "" && (parts[1] != "" || parts[3] == "") {
		panic(fmt.Sprintf("%q is not a sidecar's address: write http://HOST:PORT or unix:PATH", url))
	}
	host, number := parts[2], parts[3]
	if host == "" {
		host = "127.0.0.1"
	}
	if number == "" && parts[1] == "" {
		number = "4040"
	} else if number == "" {
		number = "80"
	}
	return &Bellwether{URL: "http://" + host + ":" + number, transport: &http.Transport{}}
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

// Follow follows until the process ends. The callbacks run on its goroutine, one at a time, and must return soon: nothing is
// renewed meanwhile. One that panics ends the process, as usual.
func (b *Bellwether) Follow(onElected func(token uint64), onLost func()) {
	var led, index uint64
	reported := ""
	for {
		// While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
		current := b.current()
		left, wait, timeout, failed := current.left(), 60*time.Second, 65*time.Second, false
		if left > 0 {
			wait, timeout = left/2, left
			if wait > current.interval() {
				wait = current.interval()
			}
		}
		if current.Token != 0 && left <= 0 {
			b.set(lease{}) // Ask again at once: the next lease need not be a change.
			index = 0
		} else if err := b.renew(&index, wait, timeout); err != nil {
			// Without an answer, the lease of the last one still counts.
			// In the last second of a lease, the sidecar had too little time to answer.
			if timeout >= time.Second && reported != err.Error() {
				log.Printf("the sidecar at %s gives no good answer, asking again: %v", b.URL, err)
				reported = err.Error()
			}
			index, failed = 0, true
		} else {
			reported = ""
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

// Lock waits until the lock is held; without a limit if wait is negative, and beside a frozen sidecar for five seconds more. The
// error is ErrTimeout if it was not got in time, and an *AnswerError if the sidecar refuses it.
func (b *Bellwether) Lock(name string, wait time.Duration) (*Lock, error) {
	if !lockName.MatchString(name) || name == "." || name == ".." {
		return nil, fmt.Errorf("%q is not a lock's name: write 1 to 64 of A-Z a-z 0-9 . _ -", name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	path, limit := b.URL+"/locks/"+name, (<-chan time.Time)(nil)
	if wait >= 0 {
		path += fmt.Sprintf("?wait=%dms", wait.Milliseconds())
		timer := time.NewTimer(wait + 5*time.Second)
		defer timer.Stop()
		limit = timer.C
	}
	request, err := http.NewRequestWithContext(ctx, "POST", path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Bellwether", "1")
	if b.CommandToken != "" {
		request.Header.Set("Authorization", "Bearer "+b.CommandToken)
	}
	client := http.Client{Transport: b.transport}
	lock := &Lock{release: cancel}
	decided := make(chan error, 1)
	go func() {
		answer, err := client.Do(request)
		if err != nil {
			decided <- err
			return
		}
		lock.read(answer, decided)
	}()
	select {
	case err = <-decided:
	case <-limit:
		err = ErrTimeout
	}
	if err != nil {
		lock.Release()
		return nil, err
	}
	return lock, nil
}

type answer struct {
	lease
	Type   string
	Detail string
	Leader *Leader
	IsSelf bool    `json:"is_self"`
	Index  *uint64 `json:"index"`
}

func (b *Bellwether) get(path string, timeout time.Duration) (result answer, err error) {
	client := http.Client{Transport: b.transport, Timeout: timeout}
	reply, err := client.Get(b.URL + path)
	if err != nil {
		return result, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return result, err
	}
	isKnown := json.Unmarshal(body, &result) == nil && reply.StatusCode == 200 && result.Leader != nil
	isUnknown := reply.StatusCode == 503 && strings.HasSuffix(result.Type, "no-leader")
	if !isKnown && !isUnknown {
		return result, &AnswerError{"GET " + b.URL + path, reply.StatusCode, result.Detail}
	}
	return result, nil
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
		return errors.New("it has not joined: " + answer.Detail)
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
	request := "POST " + answer.Request.URL.Path
	if answer.StatusCode != 200 {
		var body struct{ Detail string }
		// Without a body that it understands, the status says it.
		_ = json.NewDecoder(answer.Body).Decode(&body)
		decided <- &AnswerError{request, answer.StatusCode, body.Detail}
		return
	}
	event, failure, isHeld := "", errors.New("the sidecar has closed the connection"), false
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
		if event == "timeout" {
			failure = fmt.Errorf("%w: %s", ErrTimeout, data.Why)
			break
		}
		if event == "refused" {
			failure = &AnswerError{request, 409, data.Why}
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
		wait := -time.Second
		if len(os.Args) > 3 {
			seconds, err := strconv.Atoi(os.Args[3])
			if err != nil {
				log.Fatal(err)
			}
			wait = time.Duration(seconds) * time.Second
		}
		lock, err := sidecar.Lock(os.Args[2], wait)
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
	onElected := func(token uint64) {
		select {
		case elected <- token:
		default: // It will look anyway.
		}
	}
	go sidecar.Follow(onElected, func() { fmt.Fprintln(os.Stderr, "no longer leading") })
	for range elected {
		for token := sidecar.Token(); token != 0; token = sidecar.Token() {
			work(token)
		}
	}
}
