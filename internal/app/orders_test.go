package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// order tells whoever serves on a stand what to do at a point that it passes.
type order struct {
	signal unix.Signal // SIGKILL or SIGSTOP, to itself
	nth    int         // at the nth of the points that count
	since  string      // which do from this one on; "" = from the order on
	prefix string      // and begin so, or so, apart by |
}

// give replaces the order that a process of the stand has. Each that follows one writes where it did.
func (s *stand) give(o order) {
	s.t.Helper()
	s.withdraw()
	s.write("order.new", fmt.Sprintf("%d %d %q %q", o.signal, o.nth, o.since, o.prefix))
	if err := os.Rename(filepath.Join(s.dir, "order.new"), filepath.Join(s.dir, "order")); err != nil {
		s.t.Fatal(err)
	}
}

// withdraw takes the order back, and says at which point it was followed: "" when it wasn't.
func (s *stand) withdraw() (followed string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, "order")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	followed = s.followed()
	if err := os.Remove(filepath.Join(s.dir, "followed")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return followed
}

func (s *stand) followed() string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "followed"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(content)
}

// orderly is the serving process's side: it follows the orders in a directory.
type orderly struct {
	dir string

	mu      sync.Mutex
	text    string // of the order that is counted for
	order   order
	started bool
	passed  int
}

func (o *orderly) at(point string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text, err := os.ReadFile(filepath.Join(o.dir, "order"))
	if err != nil {
		return
	}
	if string(text) != o.text {
		o.text, o.passed = string(text), 0
		if _, err := fmt.Sscanf(o.text, "%d %d %q %q", &o.order.signal, &o.order.nth, &o.order.since, &o.order.prefix); err != nil {
			panic(err)
		}
		o.started = o.order.since == ""
	}
	o.started = o.started || point == o.order.since
	begins := func(prefix string) bool { return strings.HasPrefix(point, prefix) }
	if !o.started || !slices.ContainsFunc(strings.Split(o.order.prefix, "|"), begins) {
		return
	}
	if o.passed++; o.passed != o.order.nth {
		return
	}
	if err := os.WriteFile(filepath.Join(o.dir, "followed"), []byte(point), 0o600); err != nil {
		panic(err)
	}
	if o.order.signal == unix.SIGKILL {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	// Once: whoever wakes up goes on, and whoever comes next isn't concerned.
	_ = os.Remove(filepath.Join(o.dir, "order"))
	// The signal may reach this thread last: it goes no step further before it was let go on.
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, unix.SIGCONT)
	defer signal.Stop(goOn)
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-goOn
}

func TestDeclaredPointsAreTold(t *testing.T) {
	t.Parallel()
	t.Logf("%d points: %s", len(declaredPoints(t)), strings.Join(declaredPoints(t), " "))
}
