package root

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"orch/internal/testdb"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(starterVariable); text != "" {
		os.Exit(starterMain(text))
	}
	goleak.VerifyTestMain(m)
}

const starterVariable = "ORCH_ROOT_TEST_STARTER"

// starter is a process of its own that starts on a root, and what is to become of it.
type starter struct {
	Op     string        `json:"op"` // bind, join, accept
	Path   string        `json:"path"`
	URL    string        `json:"url"`
	Step   string        `json:"step"`   // at which Signal comes; empty: any
	Skip   int           `json:"skip"`   // how many times it passes such a step before
	Signal string        `json:"signal"` // kill, stop
	Starts int           `json:"starts"` // one after the other, each let go again; zero: 1
	Wait   time.Duration `json:"wait"`
	Idle   time.Duration `json:"idle"`
	Full   bool          `json:"full"` // its disk is full at first
}

// outcome is a line of its output, one for each start.
type outcome struct {
	Generation int64  `json:"generation"`
	Reason     string `json:"reason"`
	Refused    bool   `json:"refused"`
	Error      string `json:"error"`
}

func starterMain(text string) int {
	var s starter
	must(json.Unmarshal([]byte(text), &s))
	pool, err := pgxpool.New(context.Background(), s.URL)
	must(err)
	defer pool.Close()
	at := s.at()
	if s.Full {
		signal.Ignore(unix.SIGXFSZ)
		limit(0)
		s.run(pool, at)
		limit(unix.RLIM_INFINITY)
	}
	for range max(s.Starts, 1) {
		s.run(pool, at)
	}
	return 0
}

// limit makes writing fail as a full disk does.
func limit(size uint64) {
	var now unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_FSIZE, &now))
	now.Cur = min(size, now.Max)
	must(unix.Setrlimit(unix.RLIMIT_FSIZE, &now))
}

func (s starter) run(pool *pgxpool.Pool, at func(string)) {
	cfg := Config{Host: "starter", Wait: s.Wait, Rebind: true, idle: s.Idle, at: at}
	var (
		out outcome
		err error
	)
	if s.Op == "accept" {
		var a Accepted
		a, err = Accept(context.Background(), s.Path, pool, cfg)
		out.Generation = a.Generation
	} else {
		var root *Root
		if root, err = starts()[s.Op](context.Background(), s.Path, pool, cfg); err == nil {
			defer root.Close()
			out.Generation = root.Generation()
		}
	}
	if err != nil {
		out.Error, out.Reason, out.Refused = err.Error(), Reason(err), isRefusal(err)
	}
	must(json.NewEncoder(os.Stdout).Encode(out))
}

// at returns what happens at each step. Neither signal takes effect at once in all threads, so this one waits for it.
func (s starter) at() func(step string) {
	return func(step string) {
		if s.Signal == "" || s.Step != "" && s.Step != step {
			return
		}
		if s.Skip--; s.Skip >= 0 {
			return
		}
		if s.Signal == "kill" {
			must(unix.Kill(os.Getpid(), unix.SIGKILL))
			select {}
		}
		s.Signal = "" // once
		goesOn := make(chan os.Signal, 1)
		signal.Notify(goesOn, unix.SIGCONT)
		must(json.NewEncoder(os.Stdout).Encode(outcome{Reason: "stopping"}))
		must(unix.Kill(os.Getpid(), unix.SIGSTOP))
		<-goesOn
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// started is a starter while it runs.
type started struct {
	t      *testing.T
	cmd    *osexec.Cmd
	in     io.Closer
	out    *bufio.Scanner
	stderr bytes.Buffer
}

func (s starter) start(t *testing.T, path string, pool *pgxpool.Pool) *started {
	t.Helper()
	s.Path, s.URL = path, testdb.URL(testdb.ConnConfig(pool))
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &started{t: t, cmd: osexec.CommandContext(t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), starterVariable+"="+string(text))
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	return p
}

// next returns the next line of output; false at its end.
func (p *started) next() (outcome, bool) {
	p.t.Helper()
	if !p.out.Scan() {
		return outcome{}, false
	}
	var o outcome
	if err := json.Unmarshal(p.out.Bytes(), &o); err != nil {
		p.t.Fatalf("%v in %q; %s", err, p.out.Text(), p.stderr.String())
	}
	return o, true
}

// one returns the next line, which has to come.
func (p *started) one() outcome {
	p.t.Helper()
	o, ok := p.next()
	if !ok {
		p.t.Fatalf("ended: %s", p.stderr.String())
	}
	return o
}

// end waits for the end of the process, and says whether it was killed.
func (p *started) end() (killed bool) {
	p.t.Helper()
	p.in.Close()
	for p.out.Scan() {
		p.t.Logf("after its end was waited for: %s", p.out.Text())
	}
	err := p.cmd.Wait()
	var exit *osexec.ExitError
	if errors.As(err, &exit) && strings.Contains(exit.String(), "killed") {
		return true
	}
	if err != nil {
		p.t.Errorf("%v: %s", err, p.stderr.String())
	}
	return false
}

// startStopped starts until the process is stopped at its step: on a busy machine it may have lost the key before.
func (s starter) startStopped(t *testing.T, path string, pool *pgxpool.Pool) *started {
	t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; {
		p := s.start(t, path, pool)
		o := p.one()
		if o.Reason == "stopping" {
			p.stopped()
			return p
		}
		if p.end(); o.Error == "" || time.Now().After(deadline) {
			t.Fatalf("it doesn't stop: %+v", o)
		}
	}
}

// stopped waits until the kernel has stopped the process.
func (p *started) stopped() {
	p.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			p.t.Fatal(err)
		}
		if fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])); len(fields) > 1 && fields[1] == "T" {
			return
		}
	}
	p.t.Fatal("it doesn't stop")
}

func (p *started) signal(sig unix.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}
