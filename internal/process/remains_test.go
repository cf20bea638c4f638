package process_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/procfs"
	"orch/internal/process/runtest"
)

// wantShimDead waits for a run whose shim has died, and ends what it left.
func wantShimDead(t *testing.T, r *process.Run) {
	t.Helper()
	if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrShimDead) {
		t.Fatalf("wait: %v", err)
	}
	if err := r.EndRemains(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what string, id process.Identity, verdict process.Verdict) {
	t.Helper()
	if v := process.Probe(id); v != verdict {
		t.Errorf("%s is %s, want %s", what, v, verdict)
	}
}

// killed kills a process and waits until it is gone.
func killed(t *testing.T, id process.Identity) {
	t.Helper()
	if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := process.WaitExit(runtest.Bound(t), id); err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsNothing(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exec sleep 1000")
	st := runtest.Started(t, r)
	if err := r.EndRemains(runtest.Bound(t)); !errors.Is(err, process.ErrHeld) { // it lives
		t.Errorf("end what is left of a living run: %v", err)
	}
	killed(t, st.PIDs.Shim)
	for range 2 {
		if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrShimDead) {
			t.Fatalf("wait: %v", err)
		}
	}
	want(t, "agent", st.PIDs.Agent, process.Alive)
	if err := r.EndRemains(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	want(t, "agent", st.PIDs.Agent, process.Dead)
}

func TestEndRemainsOfARunThatLeftNone(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "true")
	if err := open(t, dir).EndRemains(runtest.Bound(t)); err != nil {
		t.Errorf("pending: %v", err)
	}
	runtest.Wait(t, runtest.Launch(t, dir))
	if err := open(t, dir).EndRemains(runtest.Bound(t)); err != nil {
		t.Errorf("finished: %v", err)
	}
}

func TestUnmarkedRemainsAreEnded(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"child in another session":      `setsid env -i /bin/sh -c 'echo $$ > child; exec /bin/sleep 1000' & sleep 1000`,
		"grandchild in another session": `setsid env -i /bin/sh -c '/bin/sh -c "echo \$\$ > child; exec /bin/sleep 1000" & wait' & sleep 1000`,
		// Its parent is gone before anybody looks; only the session is left of where it came from.
		"orphan in another group":           `env -i /bin/bash -mc '(echo $BASHPID > child; exec /bin/sleep 1000) & disown'; sleep 1000`,
		"child that ignores SIGTERM":        `env -i /bin/sh -c 'trap "" TERM; echo $$ > child; while :; do /bin/sleep 1000; done' & sleep 1000`,
		"child of a parent that goes first": `setsid sh -c 'trap "exit 0" TERM; setsid env -i /bin/sh -c "trap \"\" TERM; echo \$\$ > child; while :; do /bin/sleep 1; done" & while :; do sleep 0.01; done' & sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, work := runtest.Start(t, script)
			st := runtest.Started(t, r)
			child := runtest.PIDIn(t, filepath.Join(work, "child"))
			bystander := bystander(t)
			killed(t, st.PIDs.Shim)
			wantShimDead(t, r)
			want(t, "agent", st.PIDs.Agent, process.Dead)
			want(t, "child", child, process.Dead)
			want(t, "bystander", bystander, process.Alive)
		})
	}
}

func TestWhatADyingShimWasStartingIsEnded(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "true")
	// It has the shim's session and arguments, and no mark.
	shim := exec.Command("sh", "-c", `sh -c 'echo $$ > child; while :; do sleep 1000; done' "$0" & read go`, dir)
	shim.Dir = work
	shim.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := shim.StdinPipe()
	if err == nil {
		err = shim.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.IdentityOf(shim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	child := runtest.PIDIn(t, filepath.Join(work, "child"))
	raw, err := json.Marshal(process.PIDs{Shim: id})
	if err != nil {
		t.Fatal(err)
	}
	leave(t, dir, "pid.json", string(raw))
	_ = in.Close()
	_ = shim.Wait()
	wantShimDead(t, open(t, dir))
	want(t, "child", child, process.Dead)
}

// inNamespace gives a helper pid and mount namespaces of its own, and a user namespace where it needs that for it.
func inNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}

func TestRunOfALivingNamespaceIsForeign(t *testing.T) {
	t.Parallel()
	dir, work := runtest.Create(t, "echo $$ > ran; exec sleep 1000")
	container, line := helper(t, inNamespace, "container", dir)
	if line != "launched" {
		t.Fatal(line)
	}
	r := open(t, dir)
	st := runtest.Started(t, r)
	if st.Status != process.StatusAlive {
		t.Fatalf("%+v", st)
	}
	runtest.Eventually(t, "the program", func() bool {
		_, err := os.Stat(filepath.Join(work, "ran"))
		return err == nil
	})
	agent := seenFromHere(t, dir)
	shim, err := procfs.Read(agent.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(runtest.Bound(t), process.WhyCancelled); !errors.Is(err, process.ErrUnknown) { // its shim can't be reached
		t.Errorf("kill: %v", err)
	}
	if err := unix.Kill(shim.Parent, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(runtest.Bound(t)); !errors.Is(err, process.ErrForeign) {
		t.Fatalf("wait: %v", err)
	}
	if st, err = r.State(); err != nil || st.Status != process.StatusForeign || !st.Interrupted {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := r.Remove(runtest.Bound(t)); !errors.Is(err, process.ErrUnfinished) {
		t.Errorf("remove: %v", err)
	}
	want(t, "agent", agent, process.Alive)
	_ = container.Process.Kill() // and everything in it
	if err := process.WaitExit(runtest.Bound(t), agent); err != nil {
		t.Fatal(err)
	}
	if err := r.EndRemains(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
}

// seenFromHere finds the one process that carries a run's mark.
func seenFromHere(t *testing.T, runID string) process.Identity {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if procfs.HasEnv(st.PID, process.Mark+"="+runID) {
			id, err := process.IdentityOf(st.PID)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	t.Fatal("no process carries the mark")
	return process.Identity{}
}
