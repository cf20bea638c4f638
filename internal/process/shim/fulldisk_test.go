package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

// startOnSmallDisk runs a script that says first, and whose run directory, not its own, lies on a disk that gets full.
func startOnSmallDisk(t *testing.T, script string) (r *process.Run, disk, work string) {
	t.Helper()
	disk, work = runtest.SmallDisk(t, 1<<20), t.TempDir()
	dir := filepath.Join(disk, "run")
	spec := process.Spec{RunID: dir, Argv: []string{"sh", "-c", script}, Dir: work, Format: transcript.Claude}
	if err := process.Create(dir, spec, nil); err != nil {
		t.Fatal(err)
	}
	r = runtest.Launch(t, dir)
	runtest.Eventually(t, "first words", func() bool { return runtest.Output(t, r) == "first\n" })
	return r, disk, work
}

func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	untilFull = "until [ -e full ]; do sleep 0.01; done\n"
	flood     = "head -c 600000 /dev/zero | tr '\\0' x; echo\n"
)

// TestExitIsKeptOnAFullDisk goes through a run with no byte free from its start to its end: the program isn't ended, its
// last words and its exit code are there.
func TestExitIsKeptOnAFullDisk(t *testing.T) {
	t.Parallel()
	r, disk, work := startOnSmallDisk(t, "echo first\n"+untilFull+flood+claudeBegins+claudeEnds+"echo last; exit 7")
	runtest.Fill(t, disk)
	touch(t, work, "full")
	exit := runtest.Wait(t, r)
	runtest.WantCode(t, exit, 7)
	if exit.Why != process.WhyExited || exit.LogLost < 300_000 || !strings.Contains(exit.Error, "no space left") {
		t.Fatalf("%s lost=%d", runtest.Show(exit), exit.LogLost)
	}
	if got := runtest.Output(t, r); !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "\nlast\n") {
		t.Fatalf("%.20q…%.20q", got, got[len(got)-20:])
	}
	if said, err := r.Said(); err != nil || said.End != transcript.EndOK || said.SessionID != "se-ss-ion" {
		t.Fatalf("%+v, %v", said, err)
	}
	if size, err := r.Log().Size(); err != nil || size != exit.LogBytes {
		t.Fatalf("log of %d bytes, recorded %d, %v", size, exit.LogBytes, err)
	}
}

// TestLogGoesOnWhenThereIsRoomAgain lets a program fall silent before there is room again: what it has said last is
// readable all the same.
func TestLogGoesOnWhenThereIsRoomAgain(t *testing.T) {
	t.Parallel()
	r, disk, work := startOnSmallDisk(t, "echo first\n"+untilFull+flood+"echo before; echo > said; until [ -e room ]; do sleep 0.01; done; echo after; exit 7")
	free := runtest.Fill(t, disk)
	touch(t, work, "full")
	runtest.Eventually(t, "what was said without room", func() bool {
		_, err := os.Stat(filepath.Join(work, "said"))
		return err == nil
	})
	free()
	runtest.Eventually(t, "what had no room", func() bool { return strings.HasSuffix(runtest.Output(t, r), "before\n") })
	touch(t, work, "room")
	exit := runtest.Wait(t, r)
	runtest.WantCode(t, exit, 7)
	if got := runtest.Output(t, r); exit.Error != "" || !strings.HasSuffix(got, "before\nafter\n") || exit.LogBytes != int64(len("first\nbefore\nafter\n"))+600_001 {
		t.Fatalf("%s; %.20q", runtest.Show(exit), got[len(got)-20:])
	}
}

func TestTemporaryDirectoryIsEmptied(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, `mkdir -p "$0/tmp/cache/module" && echo > "$0/tmp/cache/module/file" && chmod 500 "$0/tmp/cache/module"`,
		func(s *process.Spec) { s.Argv = append(s.Argv, s.RunID) })
	r := runtest.Launch(t, dir)
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	<-r.ShimGone()
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}
