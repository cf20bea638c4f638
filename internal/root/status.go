package root

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Status is what a root and its database say about each other.
type Status struct {
	Path     string        `json:"path"`
	Marker   *MarkerStatus `json:"marker"`   // null: there is none
	Database *DBStatus     `json:"database"` // null: it wasn't asked
	Row      *RowStatus    `json:"row"`      // null: the database doesn't know the root
	Holders  []Holder      `json:"holders"`  // processes that work in the root, as far as the kernel tells
	Fits     bool          `json:"fits"`     // a start would be let in
	Verdict  string        `json:"verdict"`
}

// Ready says that the root was started on, and that the database's set-up is finished: workers needn't wait for a server.
func (s Status) Ready() bool {
	return s.Fits && s.Row != nil && s.Database.Setup == setupReady
}

// MarkerStatus is the marker's side.
type MarkerStatus struct {
	InstanceID  uuid.UUID `json:"instance_id"`
	RootID      uuid.UUID `json:"root_id"`
	Generation  int64     `json:"generation"`
	Testing     bool      `json:"testing"`
	Unconfirmed bool      `json:"unconfirmed"` // a start was interrupted, or is under way
}

// DBStatus is the database as a whole.
type DBStatus struct {
	InstanceID uuid.UUID `json:"instance_id"`
	Setup      string    `json:"setup"`
	Testing    bool      `json:"testing"`
}

// RowStatus is the database's side of the root.
type RowStatus struct {
	Generation int64 `json:"generation"`
}

// Inspect tells how a root and its database are, and whether a start as cfg describes it would be let in. It changes
// nothing. What it could find out it returns also with an error, which is the database's.
func Inspect(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (Status, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Status{}, err
	}
	if err := Bound(path); err != nil {
		return Status{Path: path, Verdict: err.Error()}, nil //nolint:nilerr // it is the answer
	}
	b := binder{path: path, pool: pool, cfg: cfg}
	p, err := b.observe(ctx)
	if err == nil {
		st := p.status(cfg.Testing)
		if st.Fits {
			err = b.lookAround(ctx, p, &st)
		}
		return st, err
	}
	st := Status{Path: path, Holders: holders(path), Verdict: err.Error()}
	if _, ok := errors.AsType[*MarkerError](err); ok || Reason(err) != "" {
		return st, nil
	}
	if m, err := readMarker(path); err == nil {
		st.Marker = m.status()
	}
	st.Verdict = "the database can't be asked"
	return st, err
}

// lookAround adds whether this is a copy of a root in use.
func (b *binder) lookAround(ctx context.Context, p pair, st *Status) error {
	l, err := openLock(b.path, 0)
	if err == nil {
		b.lock = l
		defer l.close()
	} else if !errors.Is(err, fs.ErrNotExist) { // a root that was restored may have none
		return err
	}
	err = b.original(ctx, p)
	if err == nil {
		return nil
	}
	st.Fits, st.Verdict = false, err.Error()
	if _, ok := errors.AsType[*LivingError](err); ok {
		return nil
	}
	return err
}

func (m marker) status() *MarkerStatus {
	return &MarkerStatus{InstanceID: m.InstanceID, RootID: m.RootID, Generation: m.Generation, Testing: m.Testing, Unconfirmed: m.Next != uuid.Nil}
}

func (p pair) status(testing bool) Status {
	st := Status{
		Path: p.path, Marker: p.marker.status(), Holders: holders(p.path),
		Database: &DBStatus{InstanceID: p.instance.ID, Setup: p.instance.Setup, Testing: p.instance.Testing},
	}
	if p.row.Generation >= 0 {
		st.Row = &RowStatus{Generation: p.row.Generation}
	}
	_, err := p.settled()
	if refused := p.admit(testing, false); refused != nil {
		err = refused
	}
	switch {
	case err != nil:
		st.Verdict = err.Error()
	case p.created():
		st.Fits, st.Verdict = true, "created, and not started yet: start `orch serve` on it, or `orch root bind`"
	case p.instance.Setup != setupReady:
		st.Fits, st.Verdict = true, "bound, but the database's set-up isn't finished, and workers wait for it: start `orch serve` on it, or `orch root bind`"
	case st.Marker.Unconfirmed:
		st.Fits, st.Verdict = true, "bound; a start was interrupted or is under way, the next one mends what is left of it"
	default:
		st.Fits, st.Verdict = true, "bound"
	}
	return st
}
