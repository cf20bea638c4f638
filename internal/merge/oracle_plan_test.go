package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"orch/internal/git"
	"orch/internal/queue"
	"orch/internal/testgit"
)

// branch is a task's work in a run of the oracle.
type branch struct {
	kind  string
	task  int64
	key   string
	head  string
	files []string // that it brings, also those of the branch that it is stacked on
	late  string   // file that its author pushes later
	added string   // the commit that brought it
}

func (b *branch) ref() string { return "refs/heads/orch/" + b.key }

// newOracle makes a repository with branches and what people will do to it. Some have main checked out; nobody but orch moves
// those, since the checkout wouldn't follow.
func newOracle(t *testing.T, dice *rand.Rand, run int) *oracle {
	t.Helper()
	bare := run%4 != 3
	o := &oracle{world: newWorld(t, bare), dice: dice, people: map[string]bool{}, freezes: dice.IntN(4), crashes: dice.IntN(4)}
	o.cond = sync.NewCond(&o.mu)
	o.method = []git.Method{git.Rebase, git.Rebase, git.Merge, git.Squash}[dice.IntN(4)]
	o.batch = []int{1, 4, 8}[dice.IntN(3)]
	o.repo.Git("config", "core.logAllRefUpdates", "always")
	bases := []string{o.main()}
	for i := range 2 {
		bases = append(bases, o.push(map[string]string{fmt.Sprintf("old-%d", i): "old"}))
	}
	o.start = o.main()
	if err := o.openMirror().Fetch(t.Context(), o.repo.Dir); err != nil {
		t.Fatal(err)
	}
	o.branch(bases, 5+dice.IntN(16))
	for _, b := range o.branches {
		switch dice.IntN(6) { // a head that the gates passed is the only one that may land
		case 0:
			b.late = "late-" + b.key
		case 1:
			b.late = "red-late-" + b.key
		default:
			o.tasks.head[b.task] = b.head
		}
	}
	o.foresee(bare)
	return o
}

// branch makes n branches in the mirror.
func (o *oracle) branch(bases []string, n int) {
	s := &stream{}
	for len(o.branches) < n {
		i := len(o.branches)
		from, file := bases[o.dice.IntN(len(bases))], fmt.Sprintf("f-%d", i)
		switch kind := o.dice.IntN(16); {
		case kind < 2:
			o.grow(s, "conflicting", from, nil, change{file: file, "shared": fmt.Sprintf("one\n%d\nthree\n", i)})
		case kind < 5 && i > 0:
			on := o.branches[o.dice.IntN(i)]
			o.grow(s, "stacked on "+on.key, on.ref(), on.files, change{file: file})
		case kind < 7 && i > 0:
			like := o.branches[o.dice.IntN(i)]
			all := change{}
			for _, name := range like.files {
				all[name] = name
			}
			o.grow(s, "like "+like.key, from, nil, all)
		case kind == 7:
			o.grow(s, "nothing", from, nil)
		case kind == 8:
			o.grow(s, "empty", from, nil, change{})
		case kind < 11:
			o.grow(s, "red", from, nil, change{file: file}, change{"red-" + file: "red-" + file})
		case kind < 13:
			o.grow(s, "red together", from, nil, change{"x-" + file: "x-" + file})
			o.grow(s, "red together", bases[0], nil, change{"y-" + file: "y-" + file})
		case kind == 13:
			o.grow(s, "long", from, nil, change{file + "a": file + "a"}, change{file + "b": file + "b"}, change{})
		default:
			o.grow(s, "green", from, nil, change{file: file})
		}
	}
	o.feed(o.mirror, s)
	for line := range strings.Lines(testgit.Open(o.t, o.mirror).Git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/orch/")) {
		ref, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, b := range o.branches {
			if b.ref() == ref {
				b.head = commit
			}
		}
	}
}

// grow adds a branch with a task, on a commit or another branch whose files it has too.
func (o *oracle) grow(s *stream, kind, from string, files []string, commits ...change) {
	b := &branch{kind: kind, files: slices.Clone(files)}
	o.row(&b.task, `insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values (gen_random_uuid()::text, $1, 'a task', 'api', '', 'main', 'default', 'deploy') returning id`, repoName)
	b.key = o.key(b.task)
	o.exec(`update tasks set key = $2, branch = $3 where id = $1`, b.task, b.key, "orch/"+b.key)
	s.reset(b.ref(), from)
	for _, c := range commits {
		s.commit(b.ref(), kind, c)
		for _, name := range slices.Sorted(maps.Keys(c)) {
			if name != "shared" && !slices.Contains(b.files, name) {
				b.files = append(b.files, name)
			}
		}
	}
	o.branches = append(o.branches, b)
}

// foresee decides what people will do: half of the landings are asked for at once, the others come in between.
func (o *oracle) foresee(bare bool) {
	for i, b := range o.branches {
		ask := func() { o.ask(b, i%3) }
		if o.dice.IntN(2) == 0 {
			ask()
		} else {
			o.events = append(o.events, ask)
		}
		if b.late != "" {
			o.events = append(o.events, func() { o.pushHead(b) })
		}
		if o.dice.IntN(16) == 0 {
			o.events = append(o.events, func() { o.cancelTask(b) })
		}
	}
	if bare {
		for i := range o.dice.IntN(5) {
			b := o.branches[o.dice.IntN(len(o.branches))]
			file := fmt.Sprintf("person-%d", i)
			files := change{file: file}
			switch o.dice.IntN(3) {
			case 0:
				files["shared"] = fmt.Sprintf("one\nperson %d\nthree\n", i)
			case 1: // lands a part of what the branch brings
				if len(b.files) > 0 {
					files = change{b.files[0]: b.files[0]}
				}
			}
			o.events = append(o.events, func() { o.pushMain(files) })
		}
	}
	o.dice.Shuffle(len(o.events), func(i, j int) { o.events[i], o.events[j] = o.events[j], o.events[i] })
}

// ask enqueues the landing of a branch.
func (o *oracle) ask(b *branch, priority int) {
	_, err := o.queue.Enqueue(context.Background(), queue.Insert{
		Kind: Kind, Lane: Lane, Args: Args{TaskID: b.task, Stage: "deploy", Round: 1}, TaskID: b.task, Priority: priority,
		DedupeKey: queue.TaskKey(b.task),
	})
	if err != nil {
		o.t.Errorf("enqueue %s: %v", b.key, err)
	}
	o.note("%s asks", b.key)
}

// pushHead lets the author of a branch put another commit on it.
func (o *oracle) pushHead(b *branch) {
	s := &stream{}
	s.reset(b.ref(), b.head)
	s.commit(b.ref(), "late", change{b.late: b.late})
	o.feed(o.mirror, s)
	b.added = testgit.Open(o.t, o.mirror).Git("rev-parse", b.ref())
	o.note("%s is pushed to %s", b.key, b.added)
}

// pushMain lets a person move main, unless somebody else was first or it would be red, or has some of it already.
func (o *oracle) pushMain(files change) {
	ref := "refs/people/" + slices.Sorted(maps.Keys(files))[0]
	old := o.main()
	s := &stream{}
	s.reset(ref, old)
	s.commit(ref, "a person's", files)
	o.feed(o.repo.Dir, s)
	commit := o.repo.Git("rev-parse", ref)
	o.mu.Lock()
	o.people[commit] = true
	o.mu.Unlock()
	has := o.repo.Git("ls-tree", "-r", "--name-only", old)
	for name := range files {
		if name != "shared" && slices.Contains(strings.Split(has, "\n"), name) {
			return
		}
	}
	why, err := red(o.repo, commit)
	if err != nil {
		o.t.Error(err)
	}
	if why != "" {
		return
	}
	if out, err := o.repo.Try("update-ref", "refs/heads/main", commit, old); err != nil {
		o.note("a person came too late with %v: %s", files, out)
		return
	}
	o.note("a person pushed %v as %s", files, commit)
}

// change is the files of a commit, by name.
type change map[string]string

// stream is input for git fast-import.
type stream struct {
	strings.Builder

	commits int
}

// reset makes or moves a ref.
func (s *stream) reset(ref, to string) { fmt.Fprintf(s, "reset %s\nfrom %s\n\n", ref, to) }

// commit puts a commit on a ref.
func (s *stream) commit(ref, message string, files change) {
	s.commits++
	who := fmt.Sprintf("Ann Author <ann@example.com> %d +0000", 1_700_000_000+s.commits)
	message = fmt.Sprintf("%s, %d of %s", message, s.commits, ref)
	fmt.Fprintf(s, "commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n", ref, who, who, len(message), message)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(s, "M 100644 inline %s\ndata %d\n%s\n", name, len(files[name]), files[name])
	}
	s.WriteString("\n")
}

// feed gives a stream to git.
func (o *oracle) feed(dir string, s *stream) {
	cmd := exec.CommandContext(context.Background(), "git", "fast-import", "--quiet", "--force")
	cmd.Dir, cmd.Env, cmd.Stdin = filepath.Clean(dir), testgit.Env(), strings.NewReader(s.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		o.t.Error(errors.Join(err, errors.New(string(out))))
	}
}
