package git_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

func TestMirrorFollowsItsSource(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	ctx := t.Context()
	f.source.Git("branch", "topic")
	second := f.source.Commit("second", map[string]string{"a": "2\n"})
	if got := f.fetch(t); got != second {
		t.Errorf("main is %s, want %s", got, second)
	}
	if _, err := f.mirror.Base(ctx, "topic"); err != nil {
		t.Error(err)
	}
	f.source.Git("branch", "-D", "topic")
	f.source.Git("branch", "topic/more") // where the former one was a file, this needs a directory
	f.source.Git("reset", "-q", "--hard", "HEAD~")
	if got := f.fetch(t); got != f.source.Head() {
		t.Errorf("main is %s after a rewind", got)
	}
	if _, err := f.mirror.Base(ctx, "topic"); !errors.Is(err, git.ErrNoRef) {
		t.Errorf("a deleted branch: %v", err)
	}
	if _, err := f.mirror.Base(ctx, "topic/more"); err != nil {
		t.Error(err)
	}
	if err := f.mirror.Fetch(ctx, filepath.Join(f.dir, "nowhere")); err == nil {
		t.Error("a missing source is no error")
	}
	if err := f.mirror.Fetch(ctx, "ext::sh -c true"); err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("ext is allowed: %v", err)
	}
}

// Any mirror can go on with what another one published of a task that is to land.
func TestMirrorHasTheHeadsThatAreOffered(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	ctx := t.Context()
	if _, err := f.mirror.Offered(ctx, "k-1"); !errors.Is(err, git.ErrNoRef) {
		t.Errorf("before: %v", err)
	}
	f.source.Git("checkout", "-q", "--detach")
	head := f.source.Commit("work", map[string]string{"b": "1\n"})
	land := f.source.Commit("more", map[string]string{"b": "2\n"})
	f.source.Git("update-ref", "refs/orch/head/k-1", head)
	f.source.Git("update-ref", "refs/orch/land/k-1", land)
	f.fetch(t)
	if got := must[string](t)(f.mirror.Offered(ctx, "k-1")); got != head {
		t.Errorf("offered is %s, want %s", got, head)
	}
	if got := must[string](t)(f.mirror.Ref(ctx, git.OfferedPrefix+"land/k-1")); got != land {
		t.Errorf("to land is %s, want %s", got, land)
	}
	f.source.Git("update-ref", "refs/orch/head/k-1", f.source.Git("rev-parse", "main")) // it was returned, and offered again
	f.source.Git("update-ref", "-d", "refs/orch/land/k-1")
	f.fetch(t)
	if got := must[string](t)(f.mirror.Offered(ctx, "k-1")); got == head {
		t.Error("offered is what was offered before")
	}
	if _, err := f.mirror.Ref(ctx, git.OfferedPrefix+"land/k-1"); !errors.Is(err, git.ErrNoRef) {
		t.Errorf("what isn't there any more: %v", err)
	}
}

func TestMirrorOfManyProcesses(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	source := testgit.New(t, map[string]string{"a": "1\n"})
	dir := filepath.Join(t.TempDir(), "deep", "m")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			m, err := git.OpenMirror(t.Context(), g, dir)
			if err == nil {
				err = m.Fetch(t.Context(), source.Dir)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestMirrorOfAnotherUsersRepository(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		return // only root can give files away
	}
	f := setup(t, map[string]string{"a": "1\n"})
	err := filepath.Walk(f.source.Dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, 12345, 12345))
	})
	if err != nil {
		t.Fatal(err)
	}
	f.fetch(t)
}

func TestMirrorOfSHA256(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	f := &fixture{git: g, dir: t.TempDir()}
	f.source = testgit.NewAt(t, filepath.Join(f.dir, "source"), map[string]string{"a": "1\n"}, "--object-format=sha256")
	f.mirror = must[*git.Mirror](t)(git.OpenMirror(t.Context(), g, filepath.Join(f.dir, "m")))
	if head := f.fetch(t); len(head) != 64 {
		t.Fatalf("main is %s", head)
	}
	f.source.Git("checkout", "-q", "-b", "topic")
	head := f.source.Commit("work", map[string]string{"b": "2\n"})
	f.source.Git("checkout", "-q", "main")
	base := f.source.Commit("other", map[string]string{"c": "3\n"})
	f.fetch(t)
	if _, err := f.mirror.Replay(t.Context(), base, head, git.Identity{Name: "orch", Email: "o@x"}); err != nil {
		t.Error(err)
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	ctx, m, ref := t.Context(), f.mirror, "refs/orch/land/k"
	first := f.source.Head()
	second := f.source.Commit("second\n\nbody", map[string]string{"a": "2\n", "b/c d": "x"})
	f.fetch(t)
	steps := []struct {
		new, old string
		want     error
	}{
		{first, second, git.ErrRefMoved},
		{first, git.Absent, nil},
		{second, git.Absent, git.ErrRefMoved},
		{second, second, git.ErrRefMoved},
		{second, first, nil},
		{first, "", nil},
	}
	for i, s := range steps {
		if err := m.SetRef(ctx, ref, s.new, s.old); !errors.Is(err, s.want) || (err != nil) != (s.want != nil) {
			t.Fatalf("step %d: got %v, want %v", i, err, s.want)
		}
	}
	if err := m.DeleteRef(ctx, ref, second); !errors.Is(err, git.ErrRefMoved) {
		t.Errorf("delete at another value: %v", err)
	}
	for range 2 {
		if err := m.DeleteRef(ctx, ref, first); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := m.Ref(ctx, ref); !errors.Is(err, git.ErrNoRef) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := m.Ref(ctx, "--help"); !errors.Is(err, git.ErrNoRef) {
		t.Errorf("an option as a ref: %v", err)
	}
	yes := must[bool](t)(m.IsAncestor(ctx, first, second))
	no := must[bool](t)(m.IsAncestor(ctx, second, first))
	if !yes || no {
		t.Errorf("ancestry: %v %v", yes, no)
	}
	if _, err := m.IsAncestor(ctx, first, strings.Repeat("1", 40)); err == nil {
		t.Error("ancestry of an unknown commit has an answer")
	}
	log := must[[]git.Commit](t)(m.Log(ctx, first, second))
	if len(log) != 1 || log[0].SHA != second || log[0].Subject != "second" || log[0].Author.Email != "ann@example.com" || log[0].Parents[0] != first {
		t.Errorf("log is %+v", log)
	}
	if paths := must[[]string](t)(m.ChangedPaths(ctx, first, second)); strings.Join(paths, ",") != "a,b/c d" {
		t.Errorf("changed paths are %q", paths)
	}
}

func TestStaleLocksDontWedge(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	f.source.Git("branch", "-f", "gone")
	f.fetch(t)
	f.source.Git("branch", "-D", "gone")
	f.inMirror(t, "pack-refs", "--all")
	head := f.source.Commit("third", map[string]string{"a": "3\n"})
	for _, lock := range []string{"refs/remotes/origin/main.lock", "packed-refs.lock", "refs/orch/land/k.lock", "HEAD.lock", "config.lock", "shallow.lock"} {
		testgit.Open(t, f.mirror.Dir()).Write(map[string]string{lock: ""})
	}
	if got := f.fetch(t); got != head {
		t.Errorf("main is %s, want %s", got, head)
	}
	if err := f.mirror.SetRef(t.Context(), "refs/orch/land/k", head, git.Absent); err != nil {
		t.Error(err)
	}
}

// A lock whose holder may live is not removed: who waits for it ends with its context.
func TestHeldLockIsRespected(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	holder, err := os.OpenFile(filepath.Join(f.mirror.Dir(), "orch-writers"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(f.mirror.Dir(), "refs", "orch", "k.lock")
	testgit.Open(t, f.mirror.Dir()).Write(map[string]string{"refs/orch/k.lock": ""})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 400*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := f.mirror.SetRef(ctx, "refs/orch/k", f.source.Head(), ""); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("the lock of a living writer was removed")
	}
}

// A process that was stopped keeps its locks: nobody waits for it for ever.
func TestLockOfAStoppedProcessIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	impatient := f.mirror.WaitFor(time.Millisecond)
	if err := impatient.Fetch(t.Context(), f.source.Dir); err != nil {
		t.Fatalf("a free lock: %v", err)
	}
	for name, use := range map[string]func() error{
		"orch-fetch":   func() error { return impatient.Fetch(t.Context(), f.source.Dir) },
		"orch-writers": func() error { return impatient.SetRef(t.Context(), "refs/orch/k", f.source.Head(), "") },
	} {
		holder, err := os.OpenFile(filepath.Join(f.mirror.Dir(), name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if err := use(); !errors.Is(err, git.ErrBusy) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		_ = holder.Close()
		if err := use(); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

func TestKilledWritersLeaveAWorkingMirror(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	for range 12 {
		f.source.Git("branch", "-f", "b"+f.source.Commit("more", map[string]string{"a": time.Now().String()})[:6])
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := exec.CommandContext(ctx, os.Args[0], f.source.Dir)
		cmd.Env = append(os.Environ(), helperEnv+"="+f.mirror.Dir())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		head := f.source.Head()
		poll(t, func() bool { // it is at work
			got, err := f.mirror.Base(t.Context(), "main")
			return err == nil && got == head
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		cancel(nil)
		f.fetch(t)
		if err := f.mirror.SetRef(t.Context(), "refs/orch/land/k1", head, ""); err != nil {
			t.Fatal(err)
		}
	}
	f.inMirror(t, "fsck", "--connectivity-only")
}

// A clone without everything in its history can't be fetched: what to do about it is said.
func TestFetchFromAPartialClone(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	f.source.Commit("more", map[string]string{"a": "2\n"})
	f.source.Git("config", "uploadpack.allowFilter", "true")
	dir := filepath.Join(f.dir, "partial")
	f.source.Git("clone", "-q", "--filter=blob:none", "file://"+f.source.Dir, dir)
	err := f.mirror.Fetch(t.Context(), dir)
	if !errors.Is(err, git.ErrPartial) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	testgit.Open(t, dir).Git("fetch", "-q", "--refetch", "--no-filter")
	if err := f.mirror.Fetch(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
