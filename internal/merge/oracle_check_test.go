package merge

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"orch/internal/git"
	"orch/internal/merge/problem"
	"orch/internal/testgit"
)

// check asks git and the tables whether what a run did is right.
//
//   - Each value that orch moved main to was tested, green, as that commit with that tree, on the value that main had; and it is
//     green to the oracle too. Commits that lie between two values aren't tested.
//   - main only ever went forward.
//   - Each file that a landed task brings came with exactly one commit of main's history; none of a task that wasn't landed did.
//   - Whoever was returned was returned rightly: the work is red where it would have landed, or git can't put it there either.
//   - Nothing is left open.
func (o *oracle) check() {
	o.checkMoves()
	o.checkHistory()
	for _, b := range o.branches {
		o.checkTask(b)
	}
	o.checkRest()
}

// move is one change of main.
type move struct{ from, to string }

// moves are the changes of main since the start, from its reflog.
func (o *oracle) moves() []move {
	o.t.Helper()
	dir := o.repo.Git("rev-parse", "--absolute-git-dir")
	text, err := os.ReadFile(filepath.Join(dir, "logs", "refs", "heads", "main"))
	if err != nil {
		o.t.Fatal(err)
	}
	var moves []move
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(moves) > 0 || words[0] == o.start {
			moves = append(moves, move{words[0], words[1]})
		}
	}
	return moves
}

func (o *oracle) checkMoves() {
	o.t.Helper()
	at, landed := o.start, 0
	for _, m := range o.moves() {
		if m.from != at {
			o.t.Errorf("main went from %s to %s, but was at %s", m.from, m.to, at)
		}
		at = m.to
		if o.people[m.to] {
			continue
		}
		landed++
		tree := o.repo.Git("rev-parse", m.to+"^{tree}")
		if got := o.text(`select count(*) from gate_evidence where commit_sha = $1 and tree = $2 and outcome = 'pass'`, m.to, tree); got == "0" {
			o.t.Errorf("main went to %s, which wasn't tested with tree %s", m.to, tree)
		}
		if got := o.text(`select count(*) from merge_attempts where tip_sha = $1
			and base_old = $2 and step = 'finalised'`, m.to, m.from); got == "0" {
			o.t.Errorf("main went from %s to %s, which no attempt meant it to", m.from, m.to)
		}
		if why, err := red(o.repo, m.to); err != nil || why != "" {
			o.t.Errorf("%s landed: %s, %v", m.to, why, err)
		}
		if out, err := o.repo.Try("merge-base", "--is-ancestor", m.from, m.to); err != nil {
			o.t.Errorf("main went back from %s to %s: %s", m.from, m.to, out)
		}
	}
	if at != o.main() {
		o.t.Errorf("main is at %s, its last move was to %s", o.main(), at)
	}
	o.t.Logf("main moved %d times by orch", landed)
}

// checkHistory compares which files came into main, and how often, with which tasks are done.
func (o *oracle) checkHistory() {
	o.t.Helper()
	came := map[string]int{}
	for name := range strings.Lines(o.repo.Git("log", "--format=", "--name-only", "--no-renames", o.start+"..main")) {
		came[strings.TrimSpace(name)]++
	}
	due := map[string]int{}
	for m := range o.peopleMoves() {
		for name := range strings.Lines(o.repo.Git("show", "--format=", "--name-only", m)) {
			due[strings.TrimSpace(name)] = 1
		}
	}
	for _, b := range o.branches {
		if o.state(b.task) != "done" {
			continue
		}
		for _, name := range b.files {
			due[name] = 1
		}
		if b.added == "" {
			continue
		}
		head := o.lastHead(b)
		upstream := o.text(`select count(*) from task_events where task_id = $1 and kind in ('upstream', 'nothing')`, b.task) == "1"
		switch _, err := o.repo.Try("merge-base", "--is-ancestor", b.added, "main"); {
		case head == b.added && !upstream, err == nil:
			due[b.late] = 1
		case upstream:
			due[b.late] = came[b.late] // the branch was looked at before that push, or all of it was there
		}
	}
	for name, n := range due {
		if name != "shared" && came[name] != n {
			o.t.Errorf("%s came into main %d times, want %d", name, came[name], n)
		}
		delete(came, name)
	}
	delete(came, "shared")
	if len(came) > 0 {
		o.t.Errorf("main has %v, which nobody landed", came)
	}
}

// lastHead is the commit of a branch that its landing looked at last.
func (o *oracle) lastHead(b *branch) string {
	return o.text(`select head_sha from merge_attempts where task_id = $1 order by id desc limit 1`, b.task)
}

// peopleMoves are the commits to which people moved main.
func (o *oracle) peopleMoves() map[string]bool {
	moves := map[string]bool{}
	for _, m := range o.moves() {
		if o.people[m.to] {
			moves[m.to] = true
		}
	}
	return moves
}

var baseOfConflict = regexp.MustCompile(`is commit ([0-9a-f]+)`)

func (o *oracle) checkTask(b *branch) {
	o.t.Helper()
	ends := strings.Fields(o.text(`select string_agg(kind, ' ') from task_events where task_id = $1`, b.task))
	state := o.state(b.task)
	switch {
	case state == "done" && len(ends) == 1 && (ends[0] == "landed" || ends[0] == "upstream"):
	case state == "done" && slices.Equal(ends, []string{"nothing"}) && len(b.files) == 0 && (b.added == "" || o.lastHead(b) != b.added):
	case state == "cancelled" && (len(ends) == 0 || slices.Equal(ends, []string{"returned"})):
	case state == "active" && slices.Equal(ends, []string{"returned"}):
		o.checkReturn(b)
	default:
		o.t.Errorf("%s (%s) ended %s by %q", b.key, b.kind, state, ends)
	}
}

func (o *oracle) checkReturn(b *branch) {
	o.t.Helper()
	switch code := o.lastError(b.task); code {
	case problem.TestRed:
		land := o.text(`select land_sha from merge_attempts where task_id = $1 order by id desc limit 1`, b.task)
		why, err := red(testgit.Open(o.t, o.mirror), land)
		if err != nil || why == "" {
			o.t.Errorf("%s (%s) was returned as red, but %s isn't: %v", b.key, b.kind, land, err)
		}
	case problem.Conflict:
		feedback := o.text(`select feedback from tasks where id = $1`, b.task)
		base := baseOfConflict.FindStringSubmatch(feedback)
		if len(base) == 0 {
			o.t.Fatalf("%s: the feedback names no commit: %s", b.key, feedback)
		}
		clone := filepath.Join(o.t.TempDir(), "conflict")
		o.repo.Git("clone", "-q", "--shared", "--no-checkout", o.mirror, clone)
		work := testgit.Open(o.t, clone)
		work.Git("checkout", "-q", "--detach", b.head)
		command := []string{"rebase", "-q", "--reapply-cherry-picks", base[1]}
		if o.method != git.Rebase {
			command = []string{"merge", "-q", base[1]}
		}
		if _, err := work.Try(command...); err == nil {
			o.t.Errorf("%s (%s) was returned as in conflict with %s, but git %s works", b.key, b.kind, base[1], strings.Join(command, " "))
		}
	default:
		o.t.Errorf("%s (%s) was returned as %s", b.key, b.kind, code)
	}
}

// checkRest looks for what is left open.
func (o *oracle) checkRest() {
	o.t.Helper()
	o.clean()
	for what, sql := range map[string]string{
		"attempts":   `select count(*) from merge_attempts where finished_at is null`,
		"merge jobs": `select count(*) from jobs where kind = 'merge' and state in ('queued', 'running', 'failed')`,
	} {
		if got := o.text(sql); got != "0" {
			o.t.Errorf("%s %s are left", got, what)
		}
	}
}
