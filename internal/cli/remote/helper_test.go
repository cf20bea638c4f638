package remote_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"orch/internal/cli"
	"orch/internal/httpapi/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server with parts in memory on a data root.
func serve(t *testing.T) (b *apitest.Backend, dataRoot string) {
	t.Helper()
	dataRoot = shortDir(t)
	b = &apitest.Backend{}
	apitest.Start(t, apitest.Config(b, filepath.Join(dataRoot, "orch.sock")))
	return b, dataRoot
}

// shortDir is short: a socket's path may hold 107 bytes only.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orch") //nolint:usetesting // short, see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// orch runs a command, which must exit with code, and returns what it printed.
func orch(t *testing.T, code int, dataRoot string, args ...string) (out, failed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	got := cli.Main(append([]string{"--root", dataRoot}, args...), cli.Streams{Out: &stdout, Err: &stderr, In: strings.NewReader("")})
	if got != code {
		t.Fatalf("orch %s: exit code %d, want %d; %s%s", strings.Join(args, " "), got, code, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String()
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var into T
	if err := json.Unmarshal([]byte(text), &into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return into
}
