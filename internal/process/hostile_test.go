package process_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

// What a program can do to its own run directory, out of malice or by accident, must not keep the run from ending, its
// shim from its deadlines, or those who look from looking.

func TestProgramThatLeavesAPipeInPlaceOfAFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stop", "said.json", "said.json.tmp", "log", "log.7", "lock", "pid.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, work := runtest.Start(t, `until [ -e go ]; do sleep 0.01; done; cd "$ORCH_RUN" && rm -f `+name+` && mkfifo `+name+` && echo '{"orch":{"status":"ok"}}' && sleep 1000`,
				func(s *process.Spec) { s.Timeout, s.Format = 2*time.Second, transcript.Command })
			runtest.Started(t, r) // its shim writes no more of these on its own
			leave(t, work, "go", "")
			if name == "lock" {
				<-r.ShimGone() // the lock is another one now
			}
			exit := runtest.Wait(t, r)
			if exit.Why != process.WhyTimeout {
				t.Errorf("%s", runtest.Show(exit))
			}
			if _, err := r.Log().Tail(1 << 10); err != nil {
				t.Error(err)
			}
			if _, err := r.Log().Size(); err != nil {
				t.Error(err)
			}
			r.StopWanted()
			_, _ = r.Said()
		})
	}
}

func TestProgramThatLeavesDirectoriesInPlaceOfFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stop", "said.json", "said.json.tmp", "exit.json", "log.7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := runtest.Start(t, `cd "$ORCH_RUN" && rm -f `+name+` && mkdir -p `+name+`/x && echo '{"orch":{"status":"ok"}}' && exit 3`,
				func(s *process.Spec) { s.Format = transcript.Command })
			runtest.WantCode(t, runtest.Wait(t, r), 3)
			if _, err := r.Log().Tail(1 << 10); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTemporaryDirectoryThatBecameALink(t *testing.T) {
	t.Parallel()
	precious := t.TempDir()
	leave(t, precious, "thesis", "")
	r, _ := runtest.Start(t, `cd "$ORCH_RUN" && rmdir tmp && ln -s '`+precious+`' tmp`)
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	<-r.ShimGone()
	if _, err := os.Stat(filepath.Join(precious, "thesis")); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "thesis")); err != nil {
		t.Fatal(err)
	}
}

func TestLogWithSegmentsThatNoShimWrote(t *testing.T) {
	t.Parallel()
	for _, plant := range []string{
		`ln -s /nowhere log.1`, `ln -s . log.1`, `: > log.9223372036854775807`, `echo x > log.9223372036854775807`, `truncate -s 1T log.99`,
	} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			r, _ := runtest.Start(t, `echo said; cd "$ORCH_RUN" && `+plant)
			runtest.WantCode(t, runtest.Wait(t, r), 0)
			done := make(chan error, 1)
			go func() {
				_, err := r.Log().Tail(1 << 10)
				done <- err
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-runtest.Bound(t).Done():
				t.Fatal("the log is read for ever")
			}
			if size, err := r.Log().Size(); err != nil || size < 0 {
				t.Errorf("%d, %v", size, err)
			}
		})
	}
}

func TestFilesThatAreFarTooBig(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, `cd "$ORCH_RUN" && truncate -s 1T said.json pid.json stop && exit 3`)
	runtest.WantCode(t, runtest.Wait(t, r), 3)
	if _, err := r.Said(); err == nil {
		t.Error("read a terabyte")
	}
}

func TestStopOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := runtest.SmallDisk(t, 4<<20)
	dir := filepath.Join(disk, "run")
	work := t.TempDir()
	err := process.Create(dir, process.Spec{
		RunID: dir, Argv: []string{"sh", "-c", "sleep 1000"}, Dir: work, KillGrace: time.Second, LogCap: 64 << 10,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := runtest.Launch(t, dir)
	runtest.Started(t, r)
	free := runtest.Fill(t, disk)
	if err := r.Stop(runtest.Bound(t), process.WhyCancelled); err != nil {
		t.Error(err)
		free()
	}
	if exit := runtest.Wait(t, r); exit.Why != process.WhyCancelled || exit.Signal != unix.SignalName(unix.SIGTERM) {
		t.Error(runtest.Show(exit))
	}
}
