package contact_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"orch/internal/process/contact"
	"orch/internal/process/runtest"
)

func write(t *testing.T, dir string, at int64) {
	t.Helper()
	if err := contact.Write(dir, at); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, dir string, at int64) {
	t.Helper()
	if got, err := contact.Read(dir); err != nil || got != at {
		t.Fatalf("%d, %v; want %d", got, err, at)
	}
}

func wantNone(t *testing.T, dir string) {
	t.Helper()
	if got, err := contact.Read(dir); !errors.Is(err, contact.ErrNone) {
		t.Fatalf("%d, %v", got, err)
	}
}

func TestContactOnlyGoesForward(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantNone(t, dir)
	for _, step := range []struct{ write, want int64 }{{5, 5}, {3, 5}, {5, 5}, {7_000_000_000_000_000_000, 7_000_000_000_000_000_000}} {
		write(t, dir, step.write)
		want(t, dir, step.want)
	}
}

func TestContactOfAnotherBootDoesNotCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1_000)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "contact")
	raw, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(raw, bytes.TrimSpace(boot)) {
		t.Fatalf("%q, %v", raw, err)
	}
	// With a checksum of its own, as that boot has left it.
	other := "00000000-0000-4000-8000-000000000000 0000000000000009000 00cd3165\n"
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	wantNone(t, dir)
	write(t, dir, 10) // the clock has begun anew
	want(t, dir, 10)
}

func TestGarbageIsNoContact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1_000)
	raw, err := os.ReadFile(filepath.Join(dir, "contact"))
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{nil, raw[:20], bytes.Replace(raw, []byte("0001000"), []byte("0002000"), 1), append(bytes.Clone(raw), 'x'), make([]byte, 1<<20)} {
		if err := os.WriteFile(filepath.Join(dir, "contact"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := contact.Read(dir); err == nil {
			t.Errorf("%.30q: %d", content, got)
		}
		write(t, dir, 2_000)
		want(t, dir, 2_000)
	}
}

func TestContactIsNotedOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := runtest.SmallDisk(t, 1<<20)
	write(t, dir, 1)
	runtest.Fill(t, dir)
	write(t, dir, 2)
	want(t, dir, 2)
}

func TestReadersNeverSeeAWriteInTheMiddle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for at := range int64(2_000) {
				if err := contact.Write(dir, at); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for range 5_000 {
			if at, err := contact.Read(dir); err != nil || at < 0 {
				t.Errorf("%d, %v", at, err)
				return
			}
		}
	})
	all.Wait()
	want(t, dir, 1_999)
}
