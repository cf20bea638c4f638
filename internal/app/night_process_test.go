package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// What the reaper says of each job that it takes, and where a tick of it ends.
const (
	reaperTicked  = "reaper:ticked"
	reapedMessage = "job reaped"
	givenMessage  = "job taken from its worker, its run is gone on with"
)

const madeToPanic = "made to panic"

// Where whoever follows an agent hangs: it knows that the agent lives, or how it ended, and does nothing more.
const (
	hangsFollowing = "followed"
	hangsAtTheEnd  = "noted"
)

// haunted is a process's side of a night: it meets what is laid out for it in a directory.
//
//	ticks         a byte for each tick of the reaper, in whatever process
//	beats/NAME    daemons that have given a sign of life
//	panics/NAME   that daemon panics at its next one, and the file is gone
//	hang          holds a point: the next one to come there hangs. The file becomes hanging, holds its pid, and ends it when
//	              it goes
type haunted struct{ dir string }

// runAtNight is a process that waits for its database, as one does that nobody watches. Its log is JSON.
func runAtNight(orch func(context.Context, Options) error, dir string) int {
	return runWith(orch, Options{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), At: haunted{dir}.at})
}

func (h haunted) at(point string) {
	if daemon, is := strings.CutPrefix(point, "tick:"); is {
		h.note(filepath.Join("beats", daemon))
		if os.Remove(filepath.Join(h.dir, "panics", daemon)) == nil {
			panic(madeToPanic)
		}
	}
	if point == reaperTicked {
		h.note("ticks")
	}
	if point == hangsFollowing || point == hangsAtTheEnd {
		h.hang(point)
	}
}

// note adds a byte to a file.
func (h haunted) note(name string) {
	count, err := os.OpenFile(filepath.Join(h.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = count.WriteString(".")
		err = errors.Join(err, count.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (h haunted) hang(point string) {
	hang, hanging := filepath.Join(h.dir, "hang"), filepath.Join(h.dir, "hanging")
	if at, err := os.ReadFile(hang); err != nil || string(at) != point || os.Rename(hang, hanging) != nil {
		return // the rename is won by one
	}
	if err := os.WriteFile(hanging, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := os.Stat(hanging); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// furnishNight lays out what processes at night look for.
func (s *stand) furnishNight() {
	s.t.Helper()
	for _, dir := range []string{"beats", "panics"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
}

// hangAt lets the next one who comes to a point of an agent's run hang there.
func (s *stand) hangAt(point string) {
	s.t.Helper()
	s.write("hang.new", point)
	if err := os.Rename(filepath.Join(s.dir, "hang.new"), filepath.Join(s.dir, "hang")); err != nil {
		s.t.Fatal(err)
	}
}

// file is what a file of the stand holds; "" without one.
func (s *stand) file(name string) string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(content)
}

func (s *stand) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
}

// newTable prints rows, the head first. Their cells are apart by tabs.
func newTable(t *testing.T, rows []string) {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush()
	t.Log("\n" + out.String())
}

// line is one of a log.
type line map[string]any

func (l line) text(key string) string { return fmt.Sprint(l[key]) }

// linesOf are those of a log that has this message.
func (s *stand) linesOf(log, message string) (found []line) {
	s.t.Helper()
	for text := range strings.Lines(s.file(filepath.Base(log))) {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l["msg"] == message {
			found = append(found, l)
		}
	}
	return found
}

// told are the lines of all processes of the stand that have a message.
func (s *stand) told(message string) (found []line) {
	s.t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.dir, "log-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, log := range logs {
		found = append(found, s.linesOf(log, message)...)
	}
	return found
}
