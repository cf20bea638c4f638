package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"orch/internal/git"
	"orch/internal/merge/attempt"
	"orch/internal/merge/build"
	"orch/internal/merge/group"
	"orch/internal/queue"
)

// mate is somebody else in the group. Its job stays in the line and knows nothing of it before its own turn comes.
type mate struct {
	attempt.Attempt

	task Task // as it was found in the line; empty when an earlier drive wrote the intent
}

// matesTx are the mates of an attempt whose intent is open: it is one with theirs.
func matesTx(ctx context.Context, tx pgx.Tx, s *attempt.Store, a attempt.Attempt) ([]mate, error) {
	if !a.Step.Intended() {
		return nil, nil
	}
	found, err := s.GroupTx(ctx, tx, a)
	if err != nil {
		return nil, err
	}
	mates := make([]mate, 0, len(found))
	for _, f := range found {
		if f.Step == a.Step && f.TipSHA == a.TipSHA { // else it has gone its own way
			mates = append(mates, mate{Attempt: f})
		}
	}
	return mates, nil
}

// each are the mates, changed by fn.
func (d *drive) each(fn func(m *mate)) []mate {
	mates := slices.Clone(d.mates)
	for i := range mates {
		fn(&mates[i])
	}
	return mates
}

// writeAll is write for the whole group: all attempts change in one transaction.
func (d *drive) writeAll(ctx context.Context, next attempt.Attempt, mates []mate, fn func(tx pgx.Tx) error) error {
	intended := d.attempt.Step.Intended()
	err := d.write(ctx, next, func(tx pgx.Tx) error {
		if fn != nil {
			if err := fn(tx); err != nil {
				return err
			}
		}
		if !intended && d.attempt.Group == d.attempt.ID {
			if err := d.h.cfg.Store.DisbandTx(ctx, tx, d.attempt); err != nil {
				return err
			}
		}
		rows := make([]attempt.Attempt, len(mates))
		for i, m := range mates {
			rows[i] = m.Attempt
		}
		return d.h.cfg.Store.SaveMatesTx(ctx, tx, rows, intended)
	})
	if err == nil {
		d.mates = mates
	}
	return err
}

// gather finds who is tested and landed together with the attempt, and stacks their work on its own: next's tip is the last
// commit then. Who conflicts with one before it, has nothing left or stands on what was taken back, isn't in the group and waits for its own turn.
func (d *drive) gather(ctx context.Context, site *build.Site, next *attempt.Attempt) ([]mate, error) {
	next.Group = 0
	if d.def.Batch <= 1 || !d.def.Land || !d.task.Land {
		return nil, nil
	}
	found, err := d.line(ctx)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(m mate) bool { return d.barred[m.ID] })
	line := []group.Member{{Most: next.Most}}
	for _, m := range found {
		apart, err := d.apart(ctx, site, m)
		if err != nil {
			return nil, err
		}
		line = append(line, group.Member{Most: m.Most, Apart: apart})
	}
	var mates []mate
	for _, i := range group.Next(line, d.def.Batch)[1:] {
		m := found[i-1]
		made, err := site.Make(ctx, m.task.Source(), next.TipSHA, m.task.Head, git.Method(d.def.Method))
		var conflict *git.ConflictError
		var takenBack *build.TakenBackError
		if errors.As(err, &conflict) || errors.As(err, &takenBack) || err == nil && made.Empty {
			continue
		}
		if err != nil {
			return nil, err
		}
		offered, err := site.Offered(ctx, m.Key)
		if err != nil {
			return nil, err
		}
		m.Offered = offered == m.task.Head // as it is by now: anybody may take an offer away
		m.Step, m.Method, m.Group, m.LeaseEpoch = attempt.StepTesting, d.def.Method, next.ID, d.right.Epoch()
		m.BaseOld, m.HeadSHA, m.LandSHA, m.LandTree = site.Base, m.task.Head, made.Commit, made.Tree
		m.Definition, m.EvidenceID, m.Reds = d.def.Test, 0, 0
		next.TipSHA, next.TipTree = made.Commit, made.Tree
		mates = append(mates, m)
	}
	if len(mates) > 0 {
		next.Group = next.ID
	}
	for i := range mates {
		m := &mates[i]
		m.TipSHA, m.TipTree = next.TipSHA, next.TipTree
		if next.SameKey(d.attempt) && next.EvidenceID != 0 {
			m.Step, m.EvidenceID = attempt.StepReady, next.EvidenceID
		}
	}
	return mates, nil
}

// maxLine bounds how far back in the line mates are looked for.
const maxLine = 200

// line is who stands in line behind the attempt, those included whose jobs are due and wait for a free worker only. When a group
// that it leads was green already, only its members count: the same group needs no other test.
func (d *drive) line(ctx context.Context) ([]mate, error) {
	var standing []attempt.Standing
	green := d.attempt.Group == d.attempt.ID && d.attempt.EvidenceID != 0
	err := fenced(ctx, d.job, func(tx pgx.Tx) (err error) {
		if err := d.right.FenceTx(ctx, tx); err != nil {
			return err
		}
		if !green {
			if err := d.h.cfg.Store.JoinTx(ctx, tx, d.attempt, Kind, d.job.Worker().RootID, maxLine); err != nil {
				return err
			}
		}
		standing, err = d.h.cfg.Store.LineTx(ctx, tx, d.attempt, maxLine)
		return err
	})
	if err != nil {
		return nil, err
	}
	var line []mate
	for _, s := range standing {
		var args Args
		if s.Step.Intended() || green && s.Group != d.attempt.ID || (queue.Job{Args: s.Args}).Decode(&args) != nil {
			continue
		}
		t, err := d.h.cfg.Tasks.Load(ctx, s.TaskID)
		if errors.Is(err, ErrSuperseded) || err == nil && (!t.Open || t.Stage != args.Stage || t.Round != args.Round) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("load task: %w", err)
		}
		line = append(line, mate{Attempt: s.Attempt, task: t})
	}
	return line, nil
}

// apart says that somebody in the line can't be tested and landed together with the attempt: it is to be landed otherwise, or
// its head isn't to be had here.
func (d *drive) apart(ctx context.Context, site *build.Site, m mate) (bool, error) {
	if m.task.Head == "" || !m.task.Land {
		return true, nil
	}
	def, err := d.h.cfg.Catalog.Definition(ctx, m.task)
	if err != nil {
		return true, nil //nolint:nilerr // its own job tells
	}
	method := cmp.Or(def.Method, string(git.Rebase))
	if !def.Land || def.Test != d.def.Test || method != d.def.Method || def.Repo.Name != d.attempt.Repo || def.Target != d.attempt.Target {
		return true, nil
	}
	has, err := site.Has(ctx, m.task.Source(), m.task.Head)
	return !has, err
}

// intendTx locks the rows of all tasks of the group, in the order of their ids. A mate that has moved on isn't asked again.
func (d *drive) intendTx(ctx context.Context, tx pgx.Tx) error {
	tasks := []Task{d.task}
	for _, m := range d.mates {
		tasks = append(tasks, m.task)
	}
	slices.SortFunc(tasks, func(a, b Task) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range tasks {
		err := d.h.cfg.Tasks.IntentTx(ctx, tx, d.job, t)
		if t.ID == d.task.ID || !errors.Is(err, ErrSuperseded) {
			if err != nil {
				return err
			}
			continue
		}
		for _, m := range d.mates {
			if m.TaskID == t.ID {
				d.bar(m.ID)
			}
		}
		return fmt.Errorf("%w: %w", attempt.ErrChanged, errMoved)
	}
	return nil
}

var errMoved = errors.New("its task has moved on")

func (d *drive) bar(id int64) {
	if d.barred == nil {
		d.barred = map[int64]bool{}
	}
	d.barred[id] = true
}

// red is what follows a red test of a group: the same is tested once more, for a passing cause, and then it is halved. What is
// left of that is a number of each member, so that a crash forgets nothing of it.
func (d *drive) red(ctx context.Context) error {
	next := d.attempt
	if next.Reds == 0 {
		next.Reds = 1
		return d.write(ctx, next, nil)
	}
	most := group.Halve(len(d.mates) + 1)
	next.Reds, next.Most, next.Group, next.Step = 0, most, 0, attempt.StepQueued
	mates := d.each(func(m *mate) { m.Most, m.Group, m.Step = most, 0, attempt.StepQueued })
	if err := d.writeAll(ctx, next, mates, nil); err != nil {
		return err
	}
	d.h.log.InfoContext(ctx, "group is red", append(d.facts(), "members", len(mates)+1, "next", most)...)
	d.prepared, d.mates = false, nil
	d.h.at(pointHalved)
	return nil
}

// tipKey is the task whose land ref is at the tip.
func (d *drive) tipKey() string {
	for _, m := range d.mates {
		if m.LandSHA == d.attempt.TipSHA {
			return m.Key
		}
	}
	return d.attempt.Key
}

// verify are the heads that must still be what was tested.
func (d *drive) verify() map[string]string {
	heads := map[string]string{}
	for _, a := range append([]mate{{Attempt: d.attempt}}, d.mates...) {
		if a.Offered {
			heads[build.HeadRef(a.Key)] = a.HeadSHA
		}
	}
	return heads
}
