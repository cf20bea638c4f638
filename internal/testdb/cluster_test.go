package testdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/migrations"
)

// The test binary plays another test process: it boots a cluster or builds an image, says so and waits.
const roleVariable = "TESTDB_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role, dir, _ := strings.Cut(os.Getenv(roleVariable), "="); role {
	case "boot":
		c, err := boot()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.dir)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "build":
		migrator, err := db.NewMigrator(migrations.Files, nil)
		if err == nil {
			err = build(context.Background(), dir, migrator)
		}
		fmt.Println(err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m) // the cluster itself leaves no goroutine to those who check for leaks
}

func play(t *testing.T, role string) (cmd *exec.Cmd, stdin io.Closer, stdout *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	stdin, err = cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, stdin, bufio.NewReader(out)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestCluster_GoesWithItsProcess(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"returns", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd, stdin, stdout := play(t, "boot")
			dir, err := stdout.ReadString('\n')
			dir = strings.TrimSpace(dir)
			if err != nil || !filepath.IsAbs(dir) || gone(dir) {
				t.Fatalf("%s, %v", dir, err)
			}
			if how == "returns" {
				err = stdin.Close()
			} else {
				err = cmd.Process.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the directory goes", func() bool { return gone(dir) })
			left, err := exec.Command("/bin/sh", "-c", `for p in /proc/[0-9]*; do readlink "$p/cwd"; done | grep -F "$1/" || :`, "sh", dir).Output()
			if err != nil || len(left) > 0 {
				t.Errorf("left over: %s, %v", left, err)
			}
		})
	}
}

func TestImage_AbortedBuildIsNotUsed(t *testing.T) {
	t.Parallel()
	top, err := home()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(top, "run-") //nolint:usetesting // the server, another user, has to get there
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	install, err := pgembed.Find(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image(t.Context(), dir, install)
	if err != nil {
		t.Fatal(err)
	}
	// Another process builds the same one anew and is killed in the middle.
	if err := os.RemoveAll(img); err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := play(t, "build="+img)
	eventually(t, "the build runs", func() bool { return !gone(filepath.Join(img+".new", "pg", "data", "postmaster.pid")) })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !gone(img) {
		t.Fatal("half an image")
	}
	if again, err := image(t.Context(), dir, install); err != nil || again != img {
		t.Fatalf("%s, %v", again, err)
	}
	for _, name := range []string{"PG_VERSION", "global/pg_control"} {
		if gone(filepath.Join(img, name)) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, path := range []string{filepath.Join(img, "postmaster.pid"), img + ".new"} {
		if !gone(path) {
			t.Errorf("%s is left", path)
		}
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	old := now.Add(-48 * time.Hour)
	for _, name := range []string{"image-old", "image-used", "run-old", "run-new"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"image-old.lock", "image-used.lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"image-old", "image-old.lock", "image-used", "run-old"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	purge(dir, now.Add(-24*time.Hour))
	for name, want := range map[string]bool{"image-old": true, "run-old": true, "image-used": false, "run-new": false} {
		if gone(filepath.Join(dir, name)) != want {
			t.Errorf("%s gone: %v", name, !want)
		}
	}
}
