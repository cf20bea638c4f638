package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// monitorPoint is where whoever follows an agent hangs: the end of the run is known, and nothing has come of it yet.
const monitorPoint = "noted"

// haunted is a process's side of a night: it meets what is laid out for it in a directory.
//
//	ticks/NAME    a byte for each pass that the daemon has begun, in whatever process
//	panics/NAME   the next pass of that daemon panics, and the file is gone
//	hang          the next one to note an agent's end hangs there: the file becomes hanging, with its pid, and ends with it
type haunted struct{ dir string }

// runAtNight is a process that waits for its database, as one does that nobody watches. Its log is JSON.
func runAtNight(orch func(context.Context, Options) error, dir string) int {
	return runWith(orch, Options{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), At: haunted{dir}.at})
}

func (h haunted) at(point string) {
	if daemon, is := strings.CutPrefix(point, "tick:"); is {
		h.tick(daemon)
	}
	if point == monitorPoint {
		h.hang()
	}
}

func (h haunted) tick(daemon string) {
	count, err := os.OpenFile(filepath.Join(h.dir, "ticks", daemon), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = count.WriteString(".")
		err = errors.Join(err, count.Close())
	}
	if err != nil {
		panic(err)
	}
	if os.Remove(filepath.Join(h.dir, "panics", daemon)) == nil {
		panic("made to panic")
	}
}

func (h haunted) hang() {
	hanging := filepath.Join(h.dir, "hanging")
	if os.Rename(filepath.Join(h.dir, "hang"), hanging) != nil {
		return
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
