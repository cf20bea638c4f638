package httpapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
)

func TestSocketIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	info, err := os.Lstat(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	s.stop()
	if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(s.socket))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "orch.sock.lock" {
			t.Errorf("%s is left behind", entry.Name())
		}
	}
}

// dead leaves a socket file that nobody listens on, as a killed server does.
func dead(t *testing.T, path string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		t.Fatalf("a %T", listener)
	}
	unixListener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestADeadSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "orch.sock")
	dead(t, path)
	s := serve(t, func(c *httpapi.Config) { c.SocketPath = path })
	s.socket, s.unix = path, client(t, path)
	if got := s.tell(t, http.MethodGet, "/healthz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("got %d", got.StatusCode)
	}
}

func run(ctx context.Context, t *testing.T, socket string) error {
	t.Helper()
	server, err := httpapi.New(apitest.Config(&apitest.Backend{}, socket))
	if err != nil {
		t.Fatal(err)
	}
	return server.Run(ctx, func() {})
}

func TestARunningServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	err := run(t.Context(), t, s.socket)
	if !errors.Is(err, httpapi.ErrServerRunning) || !strings.Contains(err.Error(), s.socket) {
		t.Fatalf("got %v", err)
	}
	if got := s.tell(t, http.MethodGet, "/healthz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("the first server answers %d", got.StatusCode)
	}
}

func TestOfManyStartsOneWins(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "orch.sock")
	dead(t, path)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	const starts = 8
	ended := make(chan error, starts)
	var wg sync.WaitGroup
	for range starts {
		wg.Go(func() { ended <- run(ctx, t, path) })
	}
	for range starts - 1 {
		if err := <-ended; !errors.Is(err, httpapi.ErrServerRunning) {
			t.Errorf("got %v", err)
		}
	}
	if got := do(t, client(t, path), http.MethodGet, "http://localhost/healthz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("the winner answers %d", got.StatusCode)
	}
	cancel(nil)
	wg.Wait()
	if err := <-ended; err != nil {
		t.Errorf("the winner ended with %v", err)
	}
}

func TestBadSocketPathsAreRefused(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(dir, strings.Repeat("d", 110))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file:                               "is no socket",
		filepath.Join(deep, "orch.sock"):   "too long",
		filepath.Join(dir, "none", "sock"): "no such file",
	} {
		if err := run(t.Context(), t, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != "precious" {
		t.Errorf("the file was touched: %q, %v", kept, err)
	}
}
