package local_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

const gateRef = "refs/orch/gate/one/main"

// hooked is the forge with somebody who is called at each point of it and of its git.
func hooked(t *testing.T, at func(point string)) *local.Local {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{At: at})
	if err != nil {
		t.Fatal(err)
	}
	return local.New(g, local.Config{At: at})
}

func (f *fixture) claim(t *testing.T, target, owner string, epoch int64) error {
	t.Helper()
	return f.local.Claim(t.Context(), f.repo, target, forge.Claim{Owner: owner, Epoch: epoch})
}

// A holder that was frozen at any point up to the very write doesn't land after its successor's claim.
func TestLandIsRefusedAfterAnotherClaim(t *testing.T) {
	t.Parallel()
	points := []string{"git:worktree:before", "local:checked", "local:copied", "git:update-ref:before"}
	for _, frozen := range points {
		t.Run(frozen, func(t *testing.T) {
			t.Parallel()
			f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
			to := f.commit(t, map[string]string{"a": "2\n"})
			if err := f.claim(t, "main", "one", 1); err != nil {
				t.Fatal(err)
			}
			met := 0
			stale := hooked(t, func(point string) {
				if point == frozen {
					met++
					if err := f.claim(t, "main", "one", 2); err != nil {
						t.Error(err)
					}
				}
			})
			landing := f.landing(to)
			landing.Claim = forge.Claim{Owner: "one", Epoch: 1}
			result, err := stale.Land(t.Context(), f.repo, landing)
			var claimed *forge.ClaimedError
			if !errors.Is(err, forge.ErrClaimed) || !errors.As(err, &claimed) || claimed.Epoch != 2 || !result.Certain || met != 1 {
				t.Errorf("%+v, %v, met %d times", result, err, met)
			}
			if got := f.target.Git("rev-parse", "main"); got != f.old {
				t.Errorf("main moved to %s", got)
			}
			landing.Claim.Epoch = 2
			if result, err := f.local.Land(t.Context(), f.repo, landing); err != nil || !result.Certain {
				t.Errorf("the successor: %+v, %v", result, err)
			}
			landing.Claim.Epoch = 1
			if result, err := stale.Land(t.Context(), f.repo, landing); err != nil || !result.Already {
				t.Errorf("what is landed already: %+v, %v", result, err)
			}
		})
	}
}

func TestLandIsRefusedWithoutItsClaim(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	landing := f.landing(f.commit(t, map[string]string{"a": "2\n"}))
	landing.Claim = forge.Claim{Owner: "one", Epoch: 3}
	for name, prepare := range map[string]func(){
		"none":      func() {},
		"a lower":   func() { _ = f.claim(t, "main", "one", 2) },
		"another's": func() { _ = f.claim(t, "main", "two", 3) },
	} {
		prepare()
		if _, err := f.local.Land(t.Context(), f.repo, landing); !errors.Is(err, forge.ErrClaimed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, no := range []forge.Claim{{Owner: "a/b", Epoch: 1}, {Owner: "-", Epoch: 1}, {Owner: "one"}, {Epoch: 1}, {Owner: "a b", Epoch: 1}} {
		if err := f.local.Claim(t.Context(), f.repo, "main", no); err == nil {
			t.Errorf("%+v is a claim", no)
		}
	}
	for _, ref := range []string{gateRef, "refs/orch/gate/new/main"} {
		wantProblem(t, f.local.Unpublish(t.Context(), f.repo, ref), forge.CodeRefused, ref)
		wantProblem(t, f.local.Publish(t.Context(), f.repo, f.mirror.Dir(), ref), forge.CodeRefused, ref)
	}
	f.target.Git("update-ref", gateRef, f.old)
	wantProblem(t, f.claim(t, "main", "one", 4), forge.CodeRefused, gateRef)
}

func TestClaimNeverGoesBack(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	const claims = 12
	order := rand.Perm(claims)
	errs := make([]error, claims)
	var wg sync.WaitGroup
	for _, i := range order {
		wg.Go(func() { errs[i] = f.claim(t, "main", "one", int64(i+1)) })
	}
	wg.Wait()
	highest := 0
	for i, err := range errs {
		var problem *forge.ProblemError
		switch {
		case err == nil:
			highest = i + 1
		case errors.As(err, &problem) && problem.Code == forge.CodeLocked && problem.Retry: // git waits a moment for a lock
		case !errors.Is(err, forge.ErrClaimed):
			t.Error(err)
		}
	}
	if got := f.target.Git("cat-file", "blob", gateRef); highest == 0 || got != "orch gate epoch "+strconv.Itoa(highest) {
		t.Errorf("the claim is %q, the highest that was taken is %d (%v)", got, highest, order)
	}
	var claimed *forge.ClaimedError
	if err := f.claim(t, "main", "one", int64(highest-1)); highest > 1 && (!errors.As(err, &claimed) || claimed.Epoch != int64(highest)) {
		t.Errorf("a lower one: %v", err)
	}
	before := f.target.Git("rev-parse", gateRef)
	if err := f.claim(t, "main", "one", int64(highest)); err != nil || f.target.Git("rev-parse", gateRef) != before {
		t.Errorf("the same again: %v", err)
	}
}

// Each installation of orch counts for itself, and so does each target, whatever it is called.
func TestClaimsOfTwoInstallationsDontMeet(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	epoch := map[string]int64{"a": 3, "a/b": 2, "a%2Fb": 1}
	for target, n := range epoch {
		for _, owner := range []string{"one", "0b4f8ee2-3f5c-4c3e-9a52-0c8e5a6f6b7d"} {
			if err := f.claim(t, target, owner, n); err != nil {
				t.Errorf("%s of %s: %v", target, owner, err)
			}
			n += 10
		}
	}
	if refs := strings.Fields(f.target.Git("for-each-ref", "--format=%(refname)", "refs/orch/gate/")); len(refs) != 6 {
		t.Errorf("there are %q", refs)
	}
	if err := f.claim(t, "main", "two", 7); err != nil {
		t.Fatal(err)
	}
	landing := f.landing(f.commit(t, map[string]string{"a": "2\n"}))
	landing.Claim = forge.Claim{Owner: "one", Epoch: 1}
	if err := f.local.Claim(t.Context(), f.repo, "main", landing.Claim); err != nil {
		t.Fatal(err)
	}
	if _, err := f.local.Land(t.Context(), f.repo, landing); err != nil {
		t.Error(err)
	}
}

// What was tested lands only while its author's head is what it was made from, up to the very write.
func TestLandVerifiesTheHead(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	const head = "refs/orch/head/k"
	landing := f.landing(to)
	landing.Verify = map[string]string{head: to}
	refused := func(name string, with *local.Local) {
		t.Helper()
		if _, err := with.Land(t.Context(), f.repo, landing); !errors.Is(err, forge.ErrChanged) || !strings.Contains(err.Error(), head) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.target.Git("rev-parse", "main"); got != f.old {
			t.Errorf("%s: main moved to %s", name, got)
		}
	}
	refused("a head that isn't there", f.local)
	f.target.Git("update-ref", head, f.old)
	refused("another head", f.local)
	f.work.Git("push", "-q", "-f", "origin", to+":"+head)
	refused("a head that changes at the last moment", hooked(t, func(point string) {
		if point == "git:update-ref:before" {
			f.target.Git("update-ref", head, f.old)
		}
	}))
	f.target.Git("update-ref", head, to)
	if result, err := f.local.Land(t.Context(), f.repo, landing); err != nil || result.Already {
		t.Errorf("%+v, %v", result, err)
	}
	landing = forge.Landing{
		Mirror: f.mirror.Dir(), Base: "main", Old: to, New: f.commit(t, map[string]string{"a": "3\n"}), Key: "k",
		Verify: map[string]string{"refs/x\nupdate refs/heads/main " + f.old: to},
	}
	if _, err := f.local.Land(t.Context(), f.repo, landing); err == nil || f.target.Git("rev-parse", "main") != to {
		t.Errorf("a name that isn't one: %v", err)
	}
}

func TestLandWithSHA256(t *testing.T) {
	t.Parallel()
	source := testgit.NewAt(t, t.TempDir(), map[string]string{"a": "1\n"}, "--object-format=sha256")
	f := setup(t, source)
	to := f.commit(t, map[string]string{"a": "2\n", "b": "b\n"})
	ctx := t.Context()
	f.work.Git("push", "-q", f.mirror.Dir(), "HEAD:refs/orch/head/k")
	if err := f.local.Publish(ctx, f.repo, f.mirror.Dir(), "refs/orch/head/k", "refs/orch/land/k"); err != nil {
		t.Fatal(err)
	}
	for epoch := int64(1); epoch < 3; epoch++ {
		if err := f.claim(t, "main", "one", epoch); err != nil {
			t.Fatal(err)
		}
	}
	landing := f.landing(to)
	landing.Claim, landing.Verify = forge.Claim{Owner: "one", Epoch: 1}, map[string]string{"refs/orch/head/k": to}
	if _, err := f.local.Land(ctx, f.repo, landing); !errors.Is(err, forge.ErrClaimed) {
		t.Errorf("stale: %v", err)
	}
	landing.Claim.Epoch = 2
	if _, err := f.local.Land(ctx, f.repo, landing); err != nil {
		t.Fatal(err)
	}
	if err := f.refresh(t, to); err != nil || f.target.Head() != to || f.status(t) != "" || f.target.Read("b") != "b\n" {
		t.Errorf("%v, status %q", err, f.status(t))
	}
	if err := f.local.Unpublish(ctx, f.repo, "refs/orch/head/k", "refs/orch/land/k"); err != nil {
		t.Error(err)
	}
	if refs := f.target.Git("for-each-ref", "--format=%(refname)", "refs/orch/"); refs != gateRef {
		t.Errorf("left are %q", refs)
	}
}

// A ref in a claim's place which orch can't have written is told, with what to do about it, and never counted up from.
func TestClaimThatCantBeOneIsRefused(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	blob := func(text string) string {
		f.target.Write(map[string]string{"text": text})
		return f.target.Git("hash-object", "-w", "text")
	}
	for name, content := range map[string]string{
		"an epoch without a next": blob("orch gate epoch 9223372036854775807\n"),
		"no number":               blob("orch gate epoch x\n"),
		"a commit":                f.old,
		"nothing that is there":   strings.Repeat("1", 40),
		"cut off":                 "",
		"no id":                   "garbage",
	} {
		f.target.Write(map[string]string{gateRef: content + "\n"})
		if content == "" {
			f.target.Write(map[string]string{gateRef: ""})
		}
		t.Log(name)
		wantProblem(t, f.claim(t, "main", "one", 5), forge.CodeRefused, "remove that ref")
	}
	if err := os.Remove(filepath.Join(f.target.Dir, gateRef)); err != nil {
		t.Fatal(err)
	}
	if err := f.claim(t, "main", "one", 5); err != nil {
		t.Errorf("once it is removed: %v", err)
	}
}

// A branch's name may be longer than that of a file.
func TestClaimOnALongName(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	long := strings.Repeat("long-name/", 29) + "x"
	f.target.Git("branch", "-q", long, "main")
	for _, target := range []string{long, long + "y"} { // two of them are two
		if err := f.claim(t, target, "one", 7); err != nil {
			t.Fatal(err)
		}
	}
	l := f.landing(f.commit(t, map[string]string{"a": "2\n"}))
	l.Base, l.Claim = long, forge.Claim{Owner: "one", Epoch: 7}
	if _, err := f.local.Land(t.Context(), f.repo, l); err != nil {
		t.Fatal(err)
	}
	if err := f.claim(t, long, "one", 6); !errors.Is(err, forge.ErrClaimed) {
		t.Errorf("an older claim: %v", err)
	}
	if got := f.target.Git("for-each-ref", "--format=%(refname)", "refs/orch/gate"); len(strings.Fields(got)) != 2 {
		t.Errorf("claims: %q", got)
	}
}
