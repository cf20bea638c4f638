package task

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

func TestAdd_Title(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"two\nlines":             "must be one line without control characters",
		"a\x1b[2Jb":              "must be one line without control characters",
		"nul \x00":               "must be one line without control characters",
		" \n":                    "must be UTF-8 text of 1 to 300 bytes",
		"\xff":                   "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("x", 301): "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("ä", 151): "must be UTF-8 text of 1 to 300 bytes",
		strings.Repeat("ä", 150): "",
		"Do it\n":                "",
	} {
		add := newAdd()
		add.Title = title
		err := add.check()
		got := ""
		if invalid, ok := errors.AsType[*InvalidError](err); ok && invalid.Field == "title" {
			got = invalid.Reason
		}
		if got != want || (want == "") != (err == nil) {
			t.Errorf("%q: %v", title, err)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	created := b.create(func(a *Add) { a.Overrides, a.Priority = map[string]string{"test": "make"}, 7 })
	if created.Key != "demo-1" || created.Branch != "orch/demo-1" || created.Stage != flow.Development || created.State != Active ||
		created.Round != 1 || created.Location != "/srv/demo" || !created.Land || created.Title != "Do it" {
		t.Errorf("%+v", created)
	}
	got, err := b.store.Get(t.Context(), "demo-1")
	if err != nil || got.ID != created.ID || string(got.Overrides) != `{"test": "make"}` {
		t.Errorf("%+v, %v", got, err)
	}
	job := b.job(created.ID)
	var args JobArgs
	if err := job.Decode(&args); err != nil || args.At() != created.At() {
		t.Errorf("%+v, %v", args, err)
	}
	if job.Kind != KindStage || job.Lane != LaneAgents || job.Priority != 7 || *job.TaskID != created.ID || *job.DedupeKey != queue.TaskKey(created.ID) {
		t.Errorf("%+v", job)
	}
	if kinds := b.kinds(created.ID); kinds != "created" {
		t.Error(kinds)
	}
	if _, err := b.store.Get(t.Context(), "demo-2"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestCreate_KeysAreCountedPerRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := b.store.Create(b.ctx, newAdd()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if other := b.create(func(a *Add) { a.Repo = "other" }); other.Key != "other-1" {
		t.Error(other.Key)
	}
	if next := b.create(); next.Key != "demo-9" {
		t.Error(next.Key)
	}
}

func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for field, change := range map[string]func(*Add){
		"repo":        func(a *Add) { a.Repo = "../x" },
		"location":    func(a *Add) { a.Location = "" },
		"title":       func(a *Add) { a.Title = "two\nlines" },
		"body":        func(a *Add) { a.Body = "nul \x00" },
		"source":      func(a *Add) { a.Source = "mail" },
		"base_branch": func(a *Add) { a.BaseBranch = "" },
		"priority":    func(a *Add) { a.Priority = 1000 },
	} {
		add := newAdd()
		change(&add)
		var invalid *InvalidError
		if _, err := b.store.Create(t.Context(), add); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	add := newAdd()
	add.Pipeline = "none"
	if _, err := b.store.Create(t.Context(), add); !errors.Is(err, ErrUnknownPipeline) {
		t.Error(err)
	}
	if n := b.count(`select count(*) from jobs`); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestCreate_RepositoryMovesOnlyWithoutOpenTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.create()
	moved := newAdd()
	moved.Location = "/elsewhere"
	if _, err := b.store.Create(t.Context(), moved); !errors.Is(err, ErrRepositoryMoved) {
		t.Fatal(err)
	}
	if _, err := b.store.Cancel(t.Context(), first.Key, "me"); err != nil {
		t.Fatal(err)
	}
	second, err := b.store.Create(t.Context(), moved)
	if err != nil || second.Key != "demo-2" || second.Location != "/elsewhere" {
		t.Errorf("%+v, %v", second, err)
	}
}
