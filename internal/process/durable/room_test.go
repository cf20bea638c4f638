package durable_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"orch/internal/process/durable"
	"orch/internal/process/runtest"
)

func reserve(t *testing.T, dir string, size int64) *durable.Room {
	t.Helper()
	room, err := durable.Reserve(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	return room
}

func wantOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) {
		t.Fatalf("%v, %v; want %v", entries, err, names)
	}
	for i, entry := range entries {
		if entry.Name() != names[i] {
			t.Fatalf("%v; want %v", entries, names)
		}
	}
}

func TestRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := runtest.SmallDisk(t, 1<<20)
	room := reserve(t, dir, 100<<10)
	runtest.Fill(t, dir)
	if _, err := durable.Reserve(dir, 4<<10); err == nil {
		t.Fatal("there is room")
	}
	content := bytes.Repeat([]byte("x"), 100<<10)
	path := filepath.Join(dir, "a")
	if err := room.Become(path, content); err != nil {
		t.Fatal(err)
	}
	room.Drop() // nothing any more
	if raw, err := os.ReadFile(path); err != nil || !bytes.Equal(raw, content) {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	wantOnly(t, dir, "a", "filler")
}

func TestRoomReplacesWhatHasTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, content := range []string{"a long one", "short", ""} {
		if err := reserve(t, dir, 4<<10).Become(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != content {
			t.Fatalf("%q, %v", raw, err)
		}
	}
	wantOnly(t, dir, "a")
}

func TestRoomThatIsTooSmallOrGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	small := reserve(t, dir, 3)
	if err := small.Become(path, []byte("four")); !errors.Is(err, durable.ErrTooBig) {
		t.Fatal(err)
	}
	if err := small.Become(path, nil); err == nil {
		t.Fatal("used twice")
	}
	gone := reserve(t, dir, 10)
	all, err := filepath.Glob(filepath.Join(dir, ".room-*"))
	if err != nil || len(all) != 1 || os.Remove(all[0]) != nil {
		t.Fatal(all, err)
	}
	if err := gone.Become(path, []byte("four")); err == nil {
		t.Fatal("the room was gone")
	}
	reserve(t, dir, 10).Drop()
	wantOnly(t, dir)
}

func TestJSONComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var got []int
	if ok, err := durable.ReadJSON(dir, "a", &got); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := durable.WriteJSON(dir, "a", []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	if ok, err := durable.ReadJSON(dir, "a", &got); !ok || err != nil || len(got) != 2 {
		t.Fatal(ok, err, got)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("[3,"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := durable.ReadJSON(dir, "a", &got); ok || !errors.Is(err, durable.ErrGarbled) || len(got) != 2 {
		t.Fatal(ok, err, got)
	}
	wantOnly(t, dir, "a")
}
