package shim

import (
	"bytes"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

func TestShimEnvironIsEmptyOfTheProgramsValues(t *testing.T) {
	t.Parallel()
	seen := filepath.Join(t.TempDir(), "environ")
	dir, _ := runtest.Create(t, "echo $KEY $SHOWN; wc -c")
	shim := []string{"sh", "-c", `env > "$0"; exec "$1" shim "$2"`, seen, os.Args[0]}
	r := runtest.LaunchWith(t, dir, shim, process.Bundle{Env: append(runtest.Env(), "KEY=key-of-the-agent")})
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if got := runtest.Output(t, r); got != "key-of-the-agent yes\n0\n" {
		t.Fatalf("the program got %q", got)
	}
	environ, err := os.ReadFile(seen)
	if err != nil || !bytes.Contains(environ, []byte("PATH=")) || bytes.Contains(environ, []byte("KEY")) || bytes.Contains(environ, []byte("SHOWN")) {
		t.Fatalf("the shim got %q, %v", environ, err)
	}
	<-r.ShimGone()
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), "log") {
			return err
		}
		if raw, err := os.ReadFile(path); err != nil || bytes.Contains(raw, []byte("key-of-the-agent")) {
			t.Errorf("%s: %q, %v", path, raw, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLauncherKilledBeforeTheBundleStartsNothing(t *testing.T) {
	t.Parallel()
	var frame bytes.Buffer
	if err := (process.Bundle{Env: runtest.Env()}).Send(&frame); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		sends int
		stuck bool
	}{{name: "before anything"}, {name: "in the middle", sends: frame.Len() - 1}, {name: "stopped in the middle", sends: 100, stuck: true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, work := runtest.Create(t, "echo > ran")
			cmd := exec.Command(os.Args[0], "shim", dir)
			cmd.Env = runtest.Env()
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write(frame.Bytes()[:tt.sends]); err != nil {
				t.Error(err)
			}
			if !tt.stuck {
				_ = in.Close()
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			r, err := process.OpenRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			if exit := runtest.Wait(t, r); exit.Why != process.WhyNeverStarted || !strings.Contains(exit.Error, "didn't arrive") {
				t.Fatal(runtest.Show(exit))
			}
			runtest.WantNotRun(t, work)
		})
	}
}

func TestLargeEnvironmentArrives(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, `echo ${#BIG1} ${#BIG2}`)
	big := strings.Repeat("x", 100_000) // two are more than a pipe holds
	r := runtest.LaunchWith(t, dir, runtest.Shim(), process.Bundle{Env: append(runtest.Env(), "BIG1="+big, "BIG2="+big)})
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if got := runtest.Output(t, r); got != "100000 100000\n" {
		t.Fatal(got)
	}
}

func TestSecretsInTheLogAreReplaced(t *testing.T) {
	t.Parallel()
	const token = "tok-0123456789abcdef"
	dir, work := runtest.Create(t, `printf 'first tok-01234'; echo > printed; read go < gate; echo 56789abcdef; printf %s "before $TOKEN after" | base64; echo "$TOKEN" >&2; printf tok-01`)
	if err := unix.Mkfifo(filepath.Join(work, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runtest.LaunchWith(t, dir, runtest.Shim(), process.Bundle{
		Env: append(runtest.Env(), "TOKEN="+token), Secrets: []process.Secret{{Name: "TOKEN", Value: token}},
	})
	runtest.Eventually(t, "half a token", func() bool {
		_, err := os.Stat(filepath.Join(work, "printed"))
		return err == nil && runtest.Output(t, r) != ""
	})
	if got := runtest.Output(t, r); got != "first " {
		t.Fatalf("before the second half: %q", got)
	}
	if err := os.WriteFile(filepath.Join(work, "gate"), []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exit := runtest.Wait(t, r)
	runtest.WantCode(t, exit, 0)
	got := runtest.Output(t, r)
	if !strings.HasPrefix(got, "first [TOKEN]\n") || !strings.HasSuffix(got, "[TOKEN]\ntok-01") || strings.Contains(got, token) {
		t.Fatalf("%q", got)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(token))
	if strings.Contains(got, encoded[4:12]) || exit.LogBytes != int64(len(got)) {
		t.Fatalf("%q of %d bytes", got, exit.LogBytes)
	}
}
