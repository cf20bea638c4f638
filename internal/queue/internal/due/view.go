package due

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue/internal/clock"
	"orch/internal/queue/internal/statement"
)

const (
	window      = 500 // due rows of a level in which a claim looks for free keys
	keyWindow   = 100 // keys that it looks at together when more rows than that are due, and
	keyWindows  = 4   // how often
	spareLevels = 8   // without rows, that a claim goes on to look at
	spare       = 100 // candidates more than slots, at most
	keyPause    = 20 * time.Millisecond
	soon        = time.Millisecond

	// A look at everything that visits more than cheapLook index entries in vain is repeated only after restPerEntry for
	// each, about a hundred times what they cost, and at the latest after maxRest. A page of the index counts as some
	// entries more: it may be full of dead ones that an earlier look has marked, so that they are passed over uncounted.
	cheapLook    = 5_000
	perPage      = 8
	restPerEntry = 10 * time.Microsecond
	maxRest      = 3 * time.Second

	lateCommit = 50 * time.Millisecond // a row that is committed so long after its run_at is still ahead of a mark
)

// Request says for whom a view looks.
type Request struct {
	Lane  string
	Kinds []string  // only these
	Repos []string  // of the jobs that are pinned to no root, only those of these; "" is of none
	Root  uuid.UUID // the data root that is served
	Limit int       // free slots
}

// many is how many candidates a claim looks for: some more than it can take, since others look at the same ones.
func (r Request) many() int { return r.Limit + min(r.Limit, spare) + 8 }

// View is what the claims of one lane know of its queue, see doc.go.
type View struct {
	kinds, repos []string // the levels are those of
	levels       []place
	LookAt       time.Duration // boot clock: until then the levels and their marks serve
	key          string        // the walk from key to key goes on behind it
	round        bool          // which hasn't come round yet since it began, behind from
	from         string
	wrapped      bool // it has passed the last key
	byMarks      bool // the last claim went by marks
	Contended    bool // and it got only a part, since another claimer was at the same rows
}

// Clone is a View that may be changed beside this one.
func (v *View) Clone() View {
	beside := *v
	beside.levels = slices.Clone(v.levels)
	return beside
}

// Find returns candidates, the best first: more than there are slots, so that claimers who look at the same time find
// something each.
func (v *View) Find(ctx context.Context, on statement.Batcher, req Request) ([]Candidate, error) {
	var found []Candidate
	var err error
	if v.byMarks = v.serves(req); v.byMarks {
		found, err = v.walk(ctx, on, req)
	} else {
		found, err = v.look(ctx, on, req)
	}
	if err != nil {
		return nil, err
	}
	mayHoldMore := v.mayHoldMore(found, req)
	found = v.best(found)
	if !mayHoldMore {
		v.round = false
	} else {
		if found, err = v.walkKeys(ctx, on, req, found); err != nil {
			return nil, err
		}
	}
	return found[:min(len(found), req.many())], nil
}

// serves says whether a claim can do with the known levels and their marks.
func (v *View) serves(req Request) bool {
	return clock.Boot() < v.LookAt && v.isOf(req)
}

func (v *View) isOf(req Request) bool {
	return slices.Equal(v.kinds, req.Kinds) && slices.Equal(v.repos, req.Repos)
}

// look lists the levels and walks all of them from their beginning. Most often they are the known ones, so those are
// walked at once.
func (v *View) look(ctx context.Context, on statement.Batcher, req Request) (found []Candidate, err error) {
	if !v.isOf(req) {
		v.levels = nil
	}
	for i := range v.levels {
		v.levels[i].mark = time.Time{}
	}
	var listed []level
	batch := statement.ByIndex()
	visited := measure(batch)
	statement.Add(batch, listSQL, pgx.NamedArgs{
		"lane": req.Lane, "kinds": req.Kinds, "repos": req.Repos, "root": req.Root,
		"roots": []uuid.UUID{uuid.Nil, req.Root},
	}).Query(func(rows pgx.Rows) (err error) {
		listed, err = pgx.CollectRows(rows, pgx.RowToStructByPos[level])
		return err
	})
	v.queueWalk(batch, req, &found)
	cost := visited.until(batch)
	if err := on.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("look for due jobs: %w", err)
	}
	v.kinds, v.repos = slices.Clone(req.Kinds), slices.Clone(req.Repos)
	if !v.holds(listed) {
		v.levels = make([]place, len(listed))
		for i, l := range listed {
			v.levels[i].level = l
		}
		found = nil
		batch := statement.ByIndex()
		visited = measure(batch)
		v.queueWalk(batch, req, &found)
		cost = visited.until(batch)
		if err := on.SendBatch(ctx, batch).Close(); err != nil {
			return nil, fmt.Errorf("find due jobs: %w", err)
		}
	}
	v.rest(cost.entries-int64(len(found)), cost.now, found)
	return found, nil
}

// holds says whether the known levels are those of a list, and marks which of them it has. Some more do no harm: one of
// which the last job was just claimed is likely to be listed again.
func (v *View) holds(listed []level) bool {
	there := make(map[level]bool, len(listed))
	for _, l := range listed {
		there[l] = true
	}
	known := 0
	for i := range v.levels {
		v.levels[i].empty = !there[v.levels[i].level]
		if !v.levels[i].empty {
			known++
		}
	}
	return known == len(listed) && len(v.levels)-known <= spareLevels
}

// visits is how many index entries the statements between measure and until visit, and the database's time.
type visits struct {
	entries int64
	now     time.Time
}

func measure(batch *pgx.Batch) *visits {
	v := &visits{}
	batch.Queue(visitedSQL, perPage).QueryRow(func(row pgx.Row) error { return row.Scan(&v.entries, &v.now) })
	return v
}

func (v *visits) until(batch *pgx.Batch) *visits {
	batch.Queue(visitedSQL, perPage).QueryRow(func(row pgx.Row) error {
		before := v.entries
		err := row.Scan(&v.entries, &v.now)
		v.entries -= before
		return err
	})
	return v
}

// walk finds the due jobs of the known levels.
func (v *View) walk(ctx context.Context, on statement.Batcher, req Request) (found []Candidate, err error) {
	batch := statement.ByIndex()
	v.queueWalk(batch, req, &found)
	if err := on.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("find due jobs: %w", err)
	}
	return found, nil
}

func (v *View) queueWalk(batch *pgx.Batch, req Request, found *[]Candidate) {
	statement.Add(batch, walkSQL, v.args(req)).Query(func(rows pgx.Rows) (err error) {
		*found, err = pgx.AppendRows(*found, rows, func(row pgx.CollectableRow) (c Candidate, err error) {
			err = row.Scan(&c.N, &c.ID, &c.Priority, &c.RunAt, &c.Key)
			return c, err
		})
		return err
	})
}

// mayHoldMore says whether there is a level with keys of which the walk found less than it looked for: it may have ended
// at a crowd.
func (v *View) mayHoldMore(found []Candidate, req Request) bool {
	count := make([]int, len(v.levels)+1)
	for _, c := range found {
		count[c.N]++
	}
	for n, l := range v.levels {
		if l.Keyed && !l.empty && count[n+1] < req.many() {
			return true
		}
	}
	return false
}

// walkKeys goes on from key to key until it has enough jobs, has come round, or has looked at keyWindows windows: then the
// next claim goes on from there, so that every key has its turn. found is what the claim has already.
func (v *View) walkKeys(ctx context.Context, on statement.Batcher, req Request, found []Candidate) ([]Candidate, error) {
	args := v.args(req)
	args["keys"] = keyWindow
	if !v.round {
		v.round, v.from, v.wrapped = true, v.key, v.key == ""
	}
	for range keyWindows {
		args["after"] = v.key
		var keys []keyRow
		batch := statement.ByIndex()
		statement.Add(batch, keysSQL, args).Query(func(rows pgx.Rows) (err error) {
			keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[keyRow])
			return err
		})
		if err := on.SendBatch(ctx, batch).Close(); err != nil {
			return nil, fmt.Errorf("go from key to key: %w", err)
		}
		v.key = ""
		for _, row := range keys {
			if row.Nth == keyWindow {
				v.key = row.Key
			}
			if row.ID != nil {
				found = append(found, Candidate{N: *row.N, ID: *row.ID, Priority: *row.Priority, RunAt: *row.RunAt, Key: &row.Key})
			}
		}
		found = v.best(found)
		switch {
		case len(found) >= req.Limit, v.wrapped && (v.key == "" || (v.from != "" && v.key >= v.from)):
			v.round = false
			return found, nil
		case v.key == "":
			v.wrapped = true
		}
	}
	return found, nil
}

// args are the arguments of walkSQL and keysSQL.
func (v *View) args(req Request) pgx.NamedArgs {
	n := len(v.levels)
	kinds, roots, keyed, repos := make([]string, n), make([]uuid.UUID, n), make([]bool, n), make([]string, n)
	priorities, marks := make([]int16, n), make([]time.Time, n)
	for i, l := range v.levels {
		kinds[i], roots[i], keyed[i], repos[i], priorities[i], marks[i] = l.Kind, l.Root, l.Keyed, l.Repo, l.Priority, l.mark
	}
	return pgx.NamedArgs{
		"lane": req.Lane, "root": req.Root, "handled": req.Kinds, "many": req.many(), "window": max(window, req.many()),
		"kinds": kinds, "roots": roots, "keyed": keyed, "repos": repos, "priorities": priorities, "marks": marks,
	}
}

// Again is how long after a claim another one may find what it couldn't see; zero = never.
func (v *View) Again() time.Duration {
	switch {
	case v.Contended:
		return soon
	case v.round:
		return keyPause
	case v.byMarks:
		return max(v.LookAt-clock.Boot(), soon)
	default:
		return 0
	}
}

// rest says when the next look at everything is due, by what this one cost, and marks where claims begin until then.
func (v *View) rest(entries int64, now time.Time, found []Candidate) {
	if entries <= cheapLook {
		v.LookAt = 0
		return
	}
	v.LookAt = clock.Boot() + min(time.Duration(entries)*restPerEntry, maxRest)
	for i := range v.levels {
		v.levels[i].mark = now
	}
	for _, c := range found {
		if c.N > 0 && c.RunAt.Before(v.levels[c.N-1].mark) {
			v.levels[c.N-1].mark = c.RunAt
		}
	}
	for i := range v.levels {
		v.levels[i].mark = v.levels[i].mark.Add(-lateCommit)
	}
}

// Advance moves the marks to the newest of what a claim was granted: taken is true of those.
func (v *View) Advance(found []Candidate, taken map[int64]bool) {
	for _, c := range found {
		if !taken[c.ID] || c.N == 0 {
			continue
		}
		if mark, l := c.RunAt.Add(-lateCommit), &v.levels[c.N-1]; mark.After(l.mark) {
			l.mark = mark
		}
	}
}

// best sorts candidates: what may have a living run, what has begun in this root, and the rest. Of a key the first stays.
func (v *View) best(found []Candidate) []Candidate {
	rank := func(c Candidate) int {
		switch {
		case c.N == 0:
			return 0
		case v.levels[c.N-1].Root != uuid.Nil:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(found, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Priority, a.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	ids, keys := make(map[int64]bool, len(found)), map[string]bool{}
	return slices.DeleteFunc(found, func(c Candidate) bool {
		twice := ids[c.ID] || (c.Key != nil && keys[*c.Key])
		ids[c.ID] = true
		if c.Key != nil {
			keys[*c.Key] = true
		}
		return twice
	})
}
