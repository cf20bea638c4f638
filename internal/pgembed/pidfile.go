package pgembed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is what a postmaster writes about itself into its data directory, as far as orch reads it.
type pidFile struct {
	pid    int
	socket string // directory
	ready  bool
}

// errNoPID says that the file names no process: a postmaster makes it first and fills it then, and it can be garbage.
var errNoPID = errors.New("it holds no pid")

func readPIDFile(data string) (pidFile, error) {
	path := filepath.Join(data, "postmaster.pid")
	text, err := os.ReadFile(path)
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidFile{}, fmt.Errorf("read %s: %w", path, errNoPID)
	}
	file := pidFile{pid: pid}
	if len(lines) > 4 {
		file.socket = strings.TrimSpace(lines[4])
	}
	file.ready = len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"
	return file, nil
}
