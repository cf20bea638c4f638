// Package cgroup keeps the processes of a run together in a cgroup (version 2) of their own, where the system allows it.
//
// A process can leave its group and its session, throw its environment away and lose its parent, but it can't leave its
// cgroup unseen. So what a run left behind is found there even when its shim, the parent of all orphans, was killed. Not
// every system lets a program make cgroups below its own: as root it may, as a service of systemd with Delegate=yes, in
// most containers not. Without one a run is found by everything else.
package cgroup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// prefix begins the names of all cgroups made here.
	prefix = "orch-"
	procs  = "cgroup.procs"
	kill   = "cgroup.kill"
)

// Make makes a cgroup, and reports whether that is possible here.
func Make(path string) bool {
	if path == "" {
		return false
	}
	err := os.Mkdir(path, 0o700)
	return err == nil || errors.Is(err, fs.ErrExist)
}

// Of is the path if it can be that of the run's cgroup: what a file says that others can write isn't believed. Otherwise,
// and when it isn't known, it is the place for it below this process's own; nothing where there is none.
func Of(runID, path string) string {
	if filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(path) == name(runID) && !forged(path) {
		return path
	}
	if own, ok := own(); ok {
		return filepath.Join(own, name(runID))
	}
	return ""
}

// forged reports whether something else than a cgroup is at the path.
func forged(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type != unix.CGROUP2_SUPER_MAGIC
}

// name is short and unlike any other run's.
func name(runID string) string {
	sum := sha256.Sum256([]byte(runID))
	return prefix + hex.EncodeToString(sum[:16])
}

// Processes are the pids in a cgroup and those below it. One that isn't there has none.
func Processes(path string) map[int]bool {
	pids := map[int]bool{}
	if path == "" {
		return pids
	}
	_ = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // gone since
		}
		raw, err := os.ReadFile(filepath.Join(at, procs))
		if err != nil {
			return nil //nolint:nilerr // gone since
		}
		for line := range bytes.Lines(raw) {
			if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 0 { // 0: of another namespace
				pids[pid] = true
			}
		}
		return nil
	})
	return pids
}

// Kill sends SIGKILL to everything in a cgroup at once, where the kernel can.
func Kill(path string) {
	if path != "" {
		_ = os.WriteFile(filepath.Join(path, kill), []byte("1"), 0) // since Linux 5.14
	}
}

// Remove deletes a cgroup without processes, and those below it.
func Remove(path string) {
	if path == "" {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			Remove(filepath.Join(path, entry.Name()))
		}
	}
	_ = os.Remove(path) // its files go with it
}

// own is the directory of the cgroup that this process is in.
func own() (string, bool) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	return place(string(cgroups), string(mounts))
}

// place finds in what the kernel says of a process where its cgroup is mounted. What is mounted may be a part that the
// cgroup isn't in.
func place(cgroups, mounts string) (string, bool) {
	at := ""
	for line := range strings.Lines(cgroups) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			at = rest
		}
	}
	if at == "" || strings.Contains(at, "..") {
		return "", false
	}
	lines := bufio.NewScanner(strings.NewReader(mounts))
	for lines.Scan() {
		const root, point = 3, 4
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || !strings.HasPrefix(after, "cgroup2 ") || len(fields) <= point {
			continue
		}
		if rel, err := filepath.Rel(fields[root], at); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join(fields[point], rel), true
		}
	}
	return "", false
}
