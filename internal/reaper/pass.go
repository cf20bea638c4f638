package reaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent"
	"orch/internal/db"
	"orch/internal/lifespan"
	"orch/internal/process"
	"orch/internal/queue"
)

const (
	// page is how many running jobs are looked at together.
	page = 1000
	// ending is how many runs are ended at the same time.
	ending = 8
	// phaseFollowing is the phase of a job whose handler waits for its run.
	phaseFollowing = "following"
	// codePanic is the code of a part or a job that panicked.
	codePanic = "panic"
)

// walk looks at all running jobs page by page, the oldest first, each for itself: an error with one, or its panic, keeps no
// other waiting. A database that can't be asked ends it.
func (r *Reaper) walk(ctx context.Context, beat func(), look func(ctx context.Context, jobs []queue.Seen, each func(queue.Seen, func() error)) error) error {
	var failed errorList
	for after := int64(0); ; {
		jobs, err := r.cfg.Queue.RunningPage(ctx, after, page)
		if err != nil {
			failed.add(err)
			return failed.join()
		}
		away := false
		failed.add(look(ctx, jobs, func(s queue.Seen, do func() error) {
			if away || ctx.Err() != nil {
				return
			}
			err := lifespan.Guard(r.log, "look at a running job", do) //nolint:contextcheck // a guard takes no context
			if err != nil {
				failed.add(fmt.Errorf("job %d: %w", s.ID, err))
				away = db.Unreachable(err)
			}
			beat() // with each: a page of jobs that somebody has locked takes minutes
		}))
		if away || ctx.Err() != nil || len(jobs) < page {
			return failed.join()
		}
		after = jobs[len(jobs)-1].ID
	}
}

// first is the part of FirstTick.
func (r *Reaper) first(ctx context.Context, beat func()) error {
	gone, holder := map[uuid.UUID]bool{}, once(r.holder)
	dead := func(s queue.Seen) bool {
		if r.cfg.Off && s.Worker.RootID != r.cfg.RootID || holder(s.Worker) != process.Dead {
			return false
		}
		gone[s.Worker.ID] = true
		return true
	}
	err := r.walk(ctx, beat, func(ctx context.Context, jobs []queue.Seen, each func(queue.Seen, func() error)) error {
		for _, s := range r.takeMany(ctx, jobs, beat, dead) {
			each(s, func() error {
				if !dead(s) {
					return nil
				}
				life := RunNone
				switch {
				case s.RunFinished:
					life = RunFinished
				case s.RunID != nil:
					life = RunUnknown // not looked at: whoever claims the job does that
				}
				return r.take(ctx, found{Seen: s, life: life}, Verdict{Release, ReasonWorkerDead, false})
			})
		}
		return nil
	})
	failed := errorList{err}
	for id := range gone {
		failed.add(r.cfg.Queue.NoteGone(ctx, id))
	}
	return failed.join()
}

// once asks of each worker once a walk: all the jobs of one are judged alike.
func once(ask func(queue.Worker) process.Verdict) func(queue.Worker) process.Verdict {
	known := map[uuid.UUID]process.Verdict{}
	return func(w queue.Worker) process.Verdict {
		verdict, asked := known[w.ID]
		if !asked {
			verdict = ask(w)
			known[w.ID] = verdict
		}
		return verdict
	}
}

// holder says whether a worker's process lives. One of another boot is dead when it was of this data root, which one machine
// uses at a time. Of another root that would be judged by the host's name alone, which clones of a machine share. One of this root
// that can't be seen is dead when nobody else works in it.
func (r *Reaper) holder(w queue.Worker) process.Verdict {
	if w.ID == uuid.Nil || w.BootID != r.cfg.Self.BootID && w.RootID != r.cfg.RootID {
		return process.Unknown
	}
	verdict := process.Probe(identityOf(w))
	// Asked after its row was read: a worker is in the data root before it has one. That of a container which was started again
	// can't be told otherwise.
	if verdict == process.Unknown && w.RootID == r.cfg.RootID && r.cfg.Deserted != nil && r.cfg.Deserted() {
		return process.Dead
	}
	return verdict
}

func identityOf(w queue.Worker) process.Identity {
	return process.Identity{Host: w.Host, BootID: w.BootID, PIDNamespace: w.PIDNamespace, PID: w.PID, StartedAt: w.PIDStartedAt}
}

// workers notes which workers of this boot and pid namespace are gone.
func (r *Reaper) workers(ctx context.Context) error {
	workers, err := r.cfg.Queue.RunningOfBoot(ctx, r.cfg.Self.BootID, r.cfg.Self.PIDNamespace)
	if err != nil {
		return err
	}
	var failed errorList
	for _, w := range workers {
		if process.Probe(identityOf(w)) == process.Dead {
			failed.add(r.cfg.Queue.NoteGone(ctx, w.ID))
		}
	}
	return failed.join()
}

// found is a running job with all that a look found.
type found struct {
	queue.Seen

	life  Life
	sight agent.Sight // zero when no run pins it, or none was seen
}

// jobs is the pass over running jobs. What takes time it leaves for later.
func (r *Reaper) jobs(ctx context.Context) (slow []func() error, err error) {
	r.whole = false
	ceiling, gone := r.maxRunning(ctx), r.namespaces()
	holder := once(func(w queue.Worker) process.Verdict {
		verdict := r.holder(w)
		if verdict == process.Unknown && w.BootID == r.cfg.Self.BootID && gone(ctx, w) {
			return process.Dead
		}
		return verdict
	})
	err = r.walk(ctx, r.cfg.Beat, func(ctx context.Context, jobs []queue.Seen, each func(queue.Seen, func() error)) error {
		jobs = r.takeMany(ctx, jobs, r.cfg.Beat, func(s queue.Seen) bool { return holder(s.Worker) == process.Dead })
		sights, unseen := r.seem(ctx, runsOf(jobs))
		for _, s := range jobs {
			each(s, func() error {
				f := r.look(s, sights)
				e := r.evidence(f, holder(s.Worker), ceiling)
				if v, due := r.due(f, e); due {
					later, err := r.act(ctx, f, v)
					if later != nil {
						slow = append(slow, later)
					}
					return err
				}
				return nil
			})
		}
		return unseen
	})
	r.whole = !db.Unreachable(err) && ctx.Err() == nil
	return slow, err
}

// runsOf lists the runs that pin jobs.
func runsOf(jobs []queue.Seen) []uuid.UUID {
	var ids []uuid.UUID
	for _, s := range jobs {
		if s.RunID != nil {
			ids = append(ids, *s.RunID)
		}
	}
	return ids
}

// seem looks at runs. When a look at all of them fails for another reason than the database, each is looked at alone: one
// that can't be stays unknown, and hides no other.
func (r *Reaper) seem(ctx context.Context, ids []uuid.UUID) (sights map[uuid.UUID]agent.Sight, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	look := func(ids []uuid.UUID) error {
		return lifespan.Guard(r.log, "look at runs", func() (err error) { //nolint:contextcheck // a guard takes no context
			sights, err = r.cfg.Runs.Seem(ctx, ids)
			return err
		})
	}
	if err := look(ids); err == nil || db.Unreachable(err) || len(ids) == 1 {
		return sights, err
	}
	all, failed := map[uuid.UUID]agent.Sight{}, errorList{}
	for _, id := range ids {
		err := look([]uuid.UUID{id})
		if err == nil {
			maps.Copy(all, sights)
			continue
		}
		failed.add(fmt.Errorf("run %s: %w", id, err))
		if db.Unreachable(err) {
			break
		}
	}
	return all, failed.join()
}

// look puts a job and its run together.
func (r *Reaper) look(s queue.Seen, sights map[uuid.UUID]agent.Sight) found {
	f := found{Seen: s}
	if s.RunID == nil {
		return f
	}
	sight, seen := sights[*s.RunID]
	f.sight = sight
	switch {
	case s.RunFinished, seen && sight.Finished():
		f.life = RunFinished
	case !seen:
		f.life = RunUnknown
	default:
		f.life = lifeOf(sight)
	}
	return f
}

func lifeOf(s agent.Sight) Life {
	switch s.Status {
	case process.StatusAlive, process.StatusPending:
		return RunAlive
	case process.StatusFinished:
		return RunFinished
	case process.StatusForeign:
		return RunInterrupted
	case process.StatusDead:
		if s.Interrupted {
			return RunInterrupted
		}
		return RunDead
	default:
		return RunUnknown
	}
}

// evidence is what Judge is asked.
func (r *Reaper) evidence(f found, worker process.Verdict, ceiling time.Duration) Evidence {
	e := Evidence{
		Worker: worker, Expired: f.Expired || f.WorkerStopped, Run: f.life, Ceiling: ceiling,
		Following: f.Phase != nil && *f.Phase == phaseFollowing, Own: r.own(f),
	}
	e.Here = e.Own && f.life != RunNone && !f.sight.Foreign
	switch f.life {
	case RunNone:
		e.Elapsed = r.ages.atMost(f.Seen)
	case RunFinished:
		e.Elapsed, e.Following = r.ages.atMost(f.Seen), e.Following && !f.sight.Consumed()
	default:
		e.Elapsed, e.Following = f.sight.RunningFor, false
		if f.sight.Timeout > 0 && ceiling > 0 {
			e.Ceiling = max(ceiling, f.sight.Timeout+r.cfg.Grace)
		}
	}
	return e
}

// own says whether the job's run is of this data root; of one without a row the pin tells.
func (r *Reaper) own(f found) bool {
	if f.sight.Run.ID != uuid.Nil {
		return f.sight.Run.RootID == r.cfg.RootID
	}
	return f.PinnedRoot != nil && *f.PinnedRoot == r.cfg.RootID
}

// namespaces asks once a tick of each pid namespace whether it is gone. That can't be asked is no.
func (r *Reaper) namespaces() func(context.Context, queue.Worker) bool {
	known := map[string]bool{}
	return func(ctx context.Context, w queue.Worker) bool {
		if r.cfg.NamespaceGone == nil || w.PIDNamespace == r.cfg.Self.PIDNamespace {
			return false
		}
		gone, asked := known[w.PIDNamespace]
		if !asked {
			var err error
			gone, err = r.cfg.NamespaceGone(ctx, identityOf(w))
			gone = gone && err == nil
			known[w.PIDNamespace] = gone
		}
		return gone
	}
}

// due judges, counts, and says whether it is time to act.
func (r *Reaper) due(f found, e Evidence) (Verdict, bool) {
	v := Judge(e)
	switch {
	case v.Do == Leave:
		return v, false
	case v.Do == Suspect:
		r.count(f, v.Reason)
		return v, false
	case !v.Counted:
		return v, true
	}
	enough := r.count(f, v.Reason)
	if v.Reason == ReasonRunFinished {
		// The phase is as old as the last beat. The end counts from when it was noted; also of a run that ended long ago a grant
		// that is new has its phase to itself for as long.
		enough = enough && f.sight.Finished() && min(f.sight.FinishedFor, f.Elapsed) >= r.cfg.Fresh
	}
	if e.Expired && r.count(f, ReasonExpired) && !enough {
		return lost(), true
	}
	return v, enough
}

// count says whether enough ticks in a row have found that.
func (r *Reaper) count(f found, reason Reason) bool {
	key := suspect{job: f.ID, epoch: f.Epoch, reason: reason}
	if f.RunID != nil && reason != ReasonExpired {
		key.run = *f.RunID
	}
	return r.suspects.find(key) >= r.cfg.DeadTicks
}

// together does what takes time, some at once, each guarded.
func (r *Reaper) together(ctx context.Context, all []func() error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed errorList
	slots := make(chan struct{}, ending)
	for _, do := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := lifespan.Guard(r.log, "end a run", func() error { //nolint:contextcheck // a guard takes no context
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return do()
			})
			mu.Lock()
			failed.add(err)
			mu.Unlock()
			r.cfg.Beat()
		})
	}
	wg.Wait()
	return failed.join()
}

// errorList collects errors of many, and keeps few.
type errorList []error

func (l *errorList) add(err error) {
	const most = 20
	if err != nil && len(*l) < most {
		*l = append(*l, err)
	}
}

func (l *errorList) join() error { return errors.Join(*l...) }

// codeOf names an error in one word.
func codeOf(err error) string {
	if _, ok := errors.AsType[*lifespan.PanicError](err); ok {
		return codePanic
	}
	return db.Code(err)
}
