package worker_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clockVariable holds the seconds by which the clock of a process built by buildWithClockOffset is off.
const clockVariable = "ORCH_TEST_CLOCK_OFFSET_S"

// clockOffset is what such a process has beside the standard library's package time. It can't import more than that does.
const clockOffset = `package time

import "syscall"

var clockOffset = func() int64 {
	text, _ := syscall.Getenv("` + clockVariable + `")
	sign, seconds := int64(1), int64(0)
	for n, c := range []byte(text) {
		if n == 0 && c == '-' {
			sign = -1
			continue
		}
		seconds = 10*seconds + int64(c-'0')
	}
	return sign * seconds
}()
`

// buildWithClockOffset builds this test binary with a time.Now that is off. Its timers are right, as those of a machine
// with a wrong clock are.
func buildWithClockOffset(t *testing.T) string {
	t.Helper()
	const line = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("find the standard library: %v", err)
	}
	dir, lib := t.TempDir(), filepath.Join(strings.TrimSpace(string(goRoot)), "src", "time")
	source, err := os.ReadFile(filepath.Join(lib, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), line) != 1 {
		t.Fatalf("time.Now isn't written as this test knows it: look at %s/time.go", lib)
	}
	patched := strings.Replace(string(source), line, "\tsec, nsec, mono := runtimeNow()\n\tsec += clockOffset\n\tif mono == 0 {\n", 1)
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": patched, "clockoffset.go": clockOffset} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(lib, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "worker.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, "-overlay", filepath.Join(dir, "overlay.json"), ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with another clock: %v\n%s", err, out)
	}
	return program
}
