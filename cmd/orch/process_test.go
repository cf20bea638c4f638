package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// processesOf lists the living processes that work in, or were started with a path in, a directory.
func processesOf(dir string) []string {
	var found []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range entries {
		if proc == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if within(cwd, dir) || bytes.Contains(cmdline, []byte(dir+"/")) {
			found = append(found, fmt.Sprintf("%s %s (in %s)", filepath.Base(proc), bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}), cwd))
		}
	}
	return found
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// goneFrom waits until no process is left in a directory, and lists those that stay: a shim outlives its run a little.
func goneFrom(dir string) (left []string) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		if left = processesOf(dir); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// noProcess is the script command `no-process DIR`: nothing lives there any more.
func noProcess(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || neg {
		ts.Fatalf("usage: no-process DIR")
	}
	if left := goneFrom(ts.MkAbs(args[0])); len(left) > 0 {
		ts.Fatalf("still alive:\n%s", strings.Join(left, "\n"))
	}
}
