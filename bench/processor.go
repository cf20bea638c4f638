package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processes are PostgreSQL's postmaster and orch.
type processes struct{ postmaster, orch int }

// shares are parts of one processor in percent.
type shares struct{ postgres, orch float64 }

// during tells how much processor time was used while fn ran.
func (p processes) during(fn func() error) (shares, error) {
	postgres, orch, err := p.ticks()
	if err != nil {
		return shares{}, err
	}
	begin := time.Now()
	if err := fn(); err != nil {
		return shares{}, err
	}
	took := time.Since(begin).Seconds()
	postgresNow, orchNow, err := p.ticks()
	const perSecond = 100 // USER_HZ, the same on every Linux
	return shares{float64(postgresNow-postgres) / perSecond / took * 100, float64(orchNow-orch) / perSecond / took * 100}, err
}

// ticks are what postmaster and children have used, those that have ended included, and orch.
func (p processes) ticks() (postgres, orch int64, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := readStat(pid)
		switch {
		case err != nil: // it has just ended
		case pid == p.postmaster:
			postgres += stat.own + stat.reaped
		case stat.parent == p.postmaster:
			postgres += stat.own
		case pid == p.orch:
			orch += stat.own
		}
	}
	return postgres, orch, nil
}

type procStat struct {
	parent      int
	own, reaped int64 // ticks of the process, and of children that it has waited for
}

// readStat reads /proc/<pid>/stat (proc_pid_stat(5)): the fields after the name, which may hold anything.
func readStat(pid int) (procStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("stat of process %d is cut short", pid)
	}
	var n [5]int64
	for i, at := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return procStat{}, err
		}
	}
	return procStat{parent: int(n[0]), own: n[1] + n[2], reaped: n[3] + n[4]}, nil
}
