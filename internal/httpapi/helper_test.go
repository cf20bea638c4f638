package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

// contract is the OpenAPI document: every answer that do reads is checked against it.
var contract = sync.OnceValues(func() (*apitest.Contract, error) { return apitest.LoadContract(document) })

var update = flag.Bool("update", false, "write golden files anew")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// site is a server under test, and clients for both of its doors.
type site struct {
	*apitest.Backend
	server *httpapi.Server
	socket string
	stop   func()
	logs   *logBuffer
	tcp    *http.Client
	unix   *http.Client
}

func serve(t *testing.T, change ...func(*httpapi.Config)) *site {
	t.Helper()
	s := &site{Backend: &apitest.Backend{}, socket: filepath.Join(socketDir(t), "orch.sock"), logs: &logBuffer{}}
	cfg := apitest.Config(s.Backend, s.socket)
	cfg.Logger = slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, fn := range change {
		fn(&cfg)
	}
	s.server, s.stop = apitest.Start(t, cfg)
	s.tcp, s.unix = client(t, ""), client(t, s.socket)
	return s
}

// socketDir is short: a socket's path may hold 107 bytes only.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orch") //nolint:usetesting // short, see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func client(t *testing.T, socket string) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 4 * time.Minute}
}

// answer is an answer that was read to its end.
type answer struct {
	*http.Response
	body []byte
}

// ask sends a request over TCP. Headers are pairs; "Host" sets the host.
func (s *site) ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	return do(t, s.tcp, method, "http://"+s.server.Addr()+path, body, headers...)
}

// tell sends a request over the socket.
func (s *site) tell(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	return do(t, s.unix, method, "http://localhost"+path, body, headers...)
}

func request(t *testing.T, method, url, body string, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func do(t *testing.T, c *http.Client, method, url, body string, headers ...string) answer {
	t.Helper()
	response, err := c.Do(request(t, method, url, body, headers...))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	contract, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	contract.Check(t, response, read)
	return answer{Response: response, body: read}
}

// problem checks that an answer is a problem with that status and code, and returns it.
func (a answer) problem(t *testing.T, status int, code string) api.Problem {
	t.Helper()
	var problem api.Problem
	if err := json.Unmarshal(a.body, &problem); err != nil {
		t.Fatalf("%d %s is no problem: %v", a.StatusCode, a.body, err)
	}
	if kind := a.Header.Get("Content-Type"); a.StatusCode != status || problem.Code != code || problem.Status != status ||
		kind != "application/problem+json" {
		t.Fatalf("got %d %s %s, want %d %s", a.StatusCode, kind, a.body, status, code)
	}
	return problem
}

func decode[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var into T
	if a.StatusCode != status {
		t.Fatalf("got %d %s, want %d", a.StatusCode, a.body, status)
	}
	if err := json.Unmarshal(a.body, &into); err != nil {
		t.Fatalf("decode %s: %v", a.body, err)
	}
	return into
}

// eventually polls until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(4 * time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it never happened: %s", what)
		}
	}
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
