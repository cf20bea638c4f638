package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"orch/api"
	"orch/internal/testdb"
)

// crowd is how many agents live at once.
func crowd() int {
	if long() {
		return 20
	}
	return 8
}

// long is whether the long form of the tests was asked for.
func long() bool { return variables["ORCH_CHAOS_TASKS"] != "" }

// besideOthers lets a test run together with others, but not in the long form, which measures.
func besideOthers(t *testing.T) {
	t.Helper()
	if !long() {
		t.Parallel()
	}
}

// newCrowd is a place with as many slots as agents. Each agent notes its start, waits for the file go, and ends with the
// code that the file code names for its task.
func newCrowd(t *testing.T) *place {
	t.Helper()
	p := newPlace(t, `here=$(dirname "$0")
echo "$$" >> "$here/starts-$ORCH_TASK"
echo before
while [ ! -e "$here/go" ]; do sleep 0.1; done
echo after
read code < "$here/code-$ORCH_TASK"
case $code in SIG*) kill -"${code#SIG}" $$ ;; esac
exit "$code"
`)
	p.write("root/orch.yaml", `
repos: [{name: app, path: `+p.repo+`, test: none}]
agents: {coder: {preset: command, command: [sh, `+p.dir+`/agent.sh]}}
`)
	p.env = []string{"ORCH_MAX_CONCURRENCY=" + strconv.Itoa(crowd())}
	return p
}

// addAll adds tasks, each of which is to end as ends says, and waits until all their agents wait.
func (s *server) addAll(ends []string) (runs map[string]api.Run) {
	s.p.t.Helper()
	runs = map[string]api.Run{}
	for _, code := range ends {
		key := s.add("End as " + code)
		s.p.write("code-"+key, code+"\n")
		runs[key] = api.Run{}
	}
	for key := range runs {
		d := s.until(key, "its agent waits", func(d api.TaskDetail) bool {
			return len(d.Runs) > 0 && d.Runs[0].State == api.RunRunning && d.Runs[0].Pid != nil && s.p.read("starts-"+key) != ""
		})
		runs[key] = d.Runs[0]
	}
	return runs
}

// A restart after kill -9 finds each living agent again, whatever their number, and starts none anew.
//
//nolint:paralleltest // the long form tells how long that takes
func TestManyLivingAgentsAreFollowedAgainAfterAKill(t *testing.T) {
	besideOthers(t)
	t.Run("with a database of its own", func(t *testing.T) {
		besideOthers(t)
		followAgain(t, newCrowd(t))
	})
	t.Run("with a given database", func(t *testing.T) {
		besideOthers(t)
		p := newCrowd(t)
		p.onDatabase(testdb.Empty(t), p.env...)
		followAgain(t, p)
	})
}

func followAgain(t *testing.T, p *place) {
	t.Helper()
	s := p.serve()
	ends := make([]string, crowd())
	for n := range ends {
		ends[n] = "7"
	}
	runs := s.addAll(ends)
	epochs := map[string]int{}
	for key := range runs {
		d := s.until(key, "its job is known", func(d api.TaskDetail) bool { return d.Job != nil })
		epochs[key] = d.Job.Epoch
	}
	_ = s.end(syscall.SIGKILL)
	begin := time.Now()
	s = p.serve()
	up := time.Since(begin)
	for key, run := range runs {
		s.until(key, "is followed again", func(d api.TaskDetail) bool {
			return d.Job != nil && d.Job.Epoch > epochs[key] && value(d.Job.Pid) == *run.Pid
		})
	}
	t.Logf("followed again %s after the start of a process that was up after %s", time.Since(begin).Round(time.Millisecond), up.Round(time.Millisecond))
	for key, run := range runs {
		if !alive(*run.Pid) {
			t.Errorf("the agent of %s is gone", key)
		}
	}
	p.write("go", "")
	for key, run := range runs {
		d := s.until(key, "its first run is used", func(d api.TaskDetail) bool { return d.Runs[0].State == api.RunFinished })
		if d.Runs[0].ID != run.ID || value(d.Runs[0].ExitCode) != 7 || d.Runs[0].Attempt != 1 {
			t.Errorf("%s: run %s ended with %v in attempt %d", key, d.Runs[0].ID, value(d.Runs[0].ExitCode), d.Runs[0].Attempt)
		}
		log, err := s.client.ReadLog(t.Context(), run.ID, 0, 0)
		if err != nil || string(log.Text) != "before\nafter\n" {
			t.Errorf("%s said %q, %v", key, log.Text, err)
		}
	}
	p.cancelAll(s, runs)
}

func (p *place) cancelAll(s *server, runs map[string]api.Run) {
	p.t.Helper()
	for key := range runs {
		if _, err := s.client.CancelTask(p.t.Context(), key); err != nil {
			p.t.Errorf("cancel %s: %v", key, err)
		}
	}
	for key := range runs {
		s.until(key, "is cancelled and cleaned up", func(d api.TaskDetail) bool {
			return d.Task.State == api.TaskCancelled && d.Events[len(d.Events)-1].Kind == "retired"
		})
	}
	s.stops()
}

// What became of an agent that ended while orch was down is known to the letter.
func TestExitStatusesOfAgentsThatEndWhileOrchIsDown(t *testing.T) {
	t.Parallel()
	rounds := 1
	if long() {
		rounds = 5
	}
	p := newCrowd(t)
	store := p.onDatabase(testdb.Empty(t), p.env...)
	signals := []string{"SIGKILL", "SIGSEGV", "SIGTERM", "SIGHUP"}
	right := 0
	for round := range rounds {
		_ = os.Remove(filepath.Join(p.dir, "go"))
		ends := make([]string, crowd())
		for n := range ends {
			if ends[n] = strconv.Itoa((n + crowd()*round) * 2); n%2 == 1 {
				ends[n] = signals[n/2%len(signals)]
			}
		}
		s := p.serve()
		runs := s.addAll(ends)
		_ = s.end(syscall.SIGKILL)
		p.write("go", "")
		for key, run := range runs {
			eventually(t, key+" leaves how it ended", func(context.Context) bool {
				_, err := os.Stat(filepath.Join(p.root, "runs", run.ID.String(), "exit.json"))
				return err == nil
			})
		}
		s = p.serve()
		for key, run := range runs {
			want := strings.TrimSpace(p.read("code-" + key))
			store.becomes("finished", fmt.Sprintf("select state from runs where id = '%s'", run.ID))
			got := store.value(fmt.Sprintf("select coalesce(signal, exit_code::text) from runs where id = '%s'", run.ID))
			if got != want {
				t.Errorf("%s ended with %s, known is %s", key, want, got)
				continue
			}
			right++
		}
		p.cancelAll(s, runs)
	}
	t.Logf("%d of %d are right", right, rounds*crowd())
}
