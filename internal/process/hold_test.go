package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

// onSmallDisk makes a run directory on a disk of its own.
func onSmallDisk(t *testing.T) (disk, dir string) {
	t.Helper()
	disk = runtest.SmallDisk(t, 1<<20)
	dir = filepath.Join(disk, "run")
	if err := process.Create(dir, process.Spec{RunID: dir, Argv: []string{"true"}, Dir: "/"}, nil); err != nil {
		t.Fatal(err)
	}
	return disk, dir
}

func TestReservedRoomIsEnough(t *testing.T) {
	t.Parallel()
	disk, dir := onSmallDisk(t)
	hold, err := process.TakeHold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Reserve(); err != nil {
		t.Fatal(err)
	}
	runtest.Fill(t, disk)
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	code := 3
	exit := process.Exit{Why: process.WhyExited, Code: &code, Error: strings.Repeat("e", 10_000)}
	said := transcript.Said{SessionID: "s", Summary: strings.Repeat("x", 32<<10)}
	for name, err := range map[string]error{
		"first pid.json": hold.WritePIDs(process.PIDs{Shim: self}), "second pid.json": hold.WritePIDs(process.PIDs{Shim: self, Agent: self}),
		"said.json": hold.WriteSaid(said), "exit.json": hold.WriteExit(exit),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	hold.Release()
	r := open(t, dir)
	if st, err := r.State(); err != nil || st.Status != process.StatusFinished || st.PIDs.Agent != self || *st.Exit.Code != code || st.Exit.Error != exit.Error {
		t.Errorf("%+v, %v", st, err)
	}
	if got, err := r.Said(); err != nil || got.Summary != said.Summary {
		t.Errorf("%d bytes of a summary, %v", len(got.Summary), err)
	}
}

func TestRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	_, dir := onSmallDisk(t)
	hold, err := process.TakeHold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Reserve(); err != nil {
		t.Fatal(err)
	}
	hold.Release()
	if left, err := filepath.Glob(filepath.Join(dir, ".room-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNothingStartsWithoutRoom(t *testing.T) {
	t.Parallel()
	disk := runtest.SmallDisk(t, 1<<20)
	dir, work := filepath.Join(disk, "run"), t.TempDir()
	if err := process.Create(dir, process.Spec{RunID: dir, Argv: []string{"sh", "-c", "echo > ran"}, Dir: work}, nil); err != nil {
		t.Fatal(err)
	}
	free := runtest.Fill(t, disk)
	r := runtest.Launch(t, dir)
	if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrNoShim) {
		t.Fatalf("wait: %v", err)
	}
	free()
	if ok, err := r.Forbid(); !ok || err != nil {
		t.Fatalf("forbid: %v, %v", ok, err)
	}
	runtest.WantNotRun(t, work)
	if left, err := filepath.Glob(filepath.Join(dir, ".room-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestGarbledSaid(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "true")
	if said, err := open(t, dir).Said(); err != nil || said.SessionID != "" {
		t.Errorf("%+v, %v", said, err)
	}
	leave(t, dir, "said.json", "{\"session_id\":")
	if said, err := open(t, dir).Said(); err == nil || said.SessionID != "" {
		t.Errorf("%+v, %v", said, err)
	}
	if err := os.Remove(filepath.Join(dir, "said.json")); err != nil {
		t.Fatal(err)
	}
}
