package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"orch/internal/testdb"
)

const marker = "root/orch-root.json"

// fails runs a command that is to fail with exit code 1, and returns all that it printed.
func (p *place) fails(args ...string) string {
	p.t.Helper()
	cmd := p.command(args...)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		p.t.Fatalf("orch %s ended with %v, want exit code 1:\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A server died between the database's part of its start and the marker's.
func TestWorkerMendsTheStartThatAServerDiedIn(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	var half map[string]any
	if err := json.Unmarshal([]byte(p.read(marker)), &half); err != nil {
		t.Fatal(err)
	}
	next := uuid.NewString()
	half["next"] = next
	text, err := json.Marshal(half)
	if err != nil {
		t.Fatal(err)
	}
	p.write(marker, string(text))
	data.exec(`update roots set generation = 2, nonce = $1`, next)

	w := p.start("worker")
	w.works()
	data.becomes("done", theTask)
	if got := data.value(generation); got != "3" {
		t.Errorf("generation %s, want 3", got)
	}
	w.stops()
}

func TestRestoredRootIsRefusedUntilAPersonAcceptsIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	if out := p.at("nowhere").fails("root", "status"); !strings.Contains(out, "no such directory") {
		t.Errorf("orch root status: %s", out)
	}
	p.bound()
	backup := p.read(marker)
	s := p.with("ORCH_WORKER_ENABLED=false").serve()
	if out := p.orch("root", "status"); !strings.Contains(out, "generation 2") || !strings.Contains(out, "verdict    bound") {
		t.Errorf("orch root status: %s", out)
	}
	if out := p.fails("root", "accept"); !strings.Contains(out, "root_in_use") {
		t.Errorf("orch root accept, with a server on it: %s", out)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	p.write(marker, backup)
	for _, command := range []string{"serve", "worker"} {
		p.start(command).refuses("copy or restored from an older backup", "orch root accept")
	}
	if got := data.value(generation) + data.value(claims); got != "20" {
		t.Errorf("generation and claims %s, want 2 and 0", got)
	}
	if out := p.fails("root", "status"); !strings.Contains(out, "generation 1") || !strings.Contains(out, "generation 2") {
		t.Errorf("orch root status: %s", out)
	}
	var accepted struct {
		Changed    bool `json:"changed"`
		Generation int  `json:"generation"`
	}
	if err := json.Unmarshal([]byte(p.orch("root", "accept", "--json")), &accepted); err != nil || !accepted.Changed || accepted.Generation != 3 {
		t.Errorf("orch root accept: %+v, %v", accepted, err)
	}
	if out := p.orch("root", "accept"); !strings.Contains(out, "nothing to do") {
		t.Errorf("orch root accept, again: %s", out)
	}
	w := p.start("worker")
	w.works()
	data.becomes("done", theTask)
	w.stops()
}

func TestRootThatDoesNotFitIsNotCalledBound(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	data.exec(`update roots set generation = 7`)
	for _, command := range [][]string{{"root", "bind"}, {"root", "status"}, {"doctor"}} {
		if out := p.fails(command...); !strings.Contains(out, "seems to be a copy") {
			t.Errorf("orch %s: %s", strings.Join(command, " "), out)
		}
	}
	data.exec(`update roots set generation = 1`)
	data.exec(`update instance set setup = 'bootstrapping'`)
	if out := p.orch("root", "bind"); !strings.Contains(out, "`orch worker` can start on it") {
		t.Errorf("it doesn't finish the set-up: %s", out)
	}
	if got := data.value(`select setup from instance`); got != "ready" {
		t.Errorf("the set-up is %s", got)
	}
}

// A copy has the generation of its original. It must neither take its jobs nor end its agents.
func TestCopyOfARootInUseIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	s := p.serve()
	other := p.at("other").with("ORCH_CONFIG="+filepath.Join(p.root, "orch.yaml"), "ORCH_HTTP_ADDR=127.0.0.1:0")
	if err := os.Mkdir(other.root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orch-root.json", "root.lock"} {
		p.write("other/"+name, p.read("root/"+name))
	}
	for _, command := range []string{"serve", "worker"} {
		other.start(command).refuses("alive elsewhere", "copy of one in use")
	}
	if out := other.fails("root", "status"); !strings.Contains(out, "alive elsewhere") {
		t.Errorf("orch root status: %s", out)
	}
	if got := data.value(generation); got != "1" {
		t.Errorf("generation %s, want the original's 1", got)
	}
	w := p.start("worker") // on the original
	w.works()
	w.stops()
	s.add("Do it")
	data.becomes("done", theTask)
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w = other.start("worker") // its original is stopped
	w.refuses("copy")
}

func TestTestingIsNotMixed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	p.onDatabase(testdb.Empty(t))
	p.bound()
	p.start("worker", "--testing").refuses("isn't marked for testing")
}

func TestWorkerThatIsSwitchedOffIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	p.env = []string{"ORCH_WORKER_ENABLED=false"}
	p.start("worker").refuses("ORCH_WORKER_ENABLED")
}

func TestAHostOfWorkersOnlyIsBoundByCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	if out := p.fails("root", "bind"); !strings.Contains(out, "ORCH_DATABASE_URL is empty") {
		t.Errorf("of a private database it says\n%s", out)
	}
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	second := p.with("ORCH_CONFIG=" + filepath.Join(p.root, "orch.yaml")).at("second")
	for _, want := range []string{"is bound, `orch worker` can start on it", "was bound before"} {
		if out := second.orch("root", "bind"); !strings.Contains(out, want) {
			t.Errorf("it says %q, want %q", out, want)
		}
	}
	if out := second.fails("root", "bind", "--testing"); !strings.Contains(out, "isn't marked for testing") {
		t.Errorf("with another testing mark it says %q", out)
	}
	if out := second.with("ORCH_DATABASE_URL="+testdb.URL(testdb.Empty(t))).fails("root", "bind"); !strings.Contains(out, "orch migrate") {
		t.Errorf("of a database without a schema it says %q", out)
	}
	w := second.start("worker")
	w.works()
	data.becomes("done", theTask)
	if got := data.value(`select string_agg(generation::text, ' ' order by path) from roots`); got != "1 2" {
		t.Errorf("generations %s, want 1 for the server's root, which nobody started on again, and 2 for the worker's", got)
	}
	w.stops()
}
