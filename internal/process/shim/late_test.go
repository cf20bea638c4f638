package shim

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
)

// A program that has failed by itself keeps that, whatever it is to be ended for while what it left behind is ended.
func TestStopThatComesAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, `(trap 'touch told' TERM; sh -c 'echo $PPID > pid'; while :; do sleep 0.01; done) & until [ -s pid ]; do sleep 0.01; done; exit 3`)
	left := runtest.PIDIn(t, filepath.Join(work, "pid"))
	runtest.Eventually(t, "what is left is ended", func() bool {
		_, err := os.Stat(filepath.Join(work, "told"))
		return err == nil
	})
	if err := r.Stop(t.Context(), process.WhyCeiling); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(left.PID, unix.SIGKILL); err != nil { // the shim waits for it
		t.Fatal(err)
	}
	exit := runtest.Wait(t, r)
	runtest.WantCode(t, exit, 3)
	if exit.Why != process.WhyExited {
		t.Fatal(runtest.Show(exit))
	}
}
