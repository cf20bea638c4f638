package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/root/layout"
)

// Bind makes the root at path and its marker unless they are there, checks that root and database belong together, gives
// the root its next generation, and returns it with root.lock held shared. The schema must be there.
func Bind(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (*Root, error) {
	if err := layout.Prepare(path); err != nil {
		return nil, err
	}
	r, err := open(ctx, path, pool, cfg, os.O_CREATE, (*binder).bind)
	if err != nil {
		return nil, fmt.Errorf("bind the data root %s: %w", path, err)
	}
	return r, nil
}

// Join is Bind for a process that works in a root which another one has bound. It creates and changes nothing before it
// has found it so: ErrMissing, ErrUnbound or ErrSetupPending.
func Join(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (*Root, error) {
	r, err := join(ctx, path, pool, cfg)
	if err != nil {
		return nil, fmt.Errorf("join the data root %s: %w", path, err)
	}
	return r, nil
}

func join(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config) (*Root, error) {
	if err := Bound(path); err != nil {
		return nil, err
	}
	r, err := open(ctx, path, pool, cfg, 0, (*binder).join)
	if errors.Is(err, fs.ErrNotExist) { // of a root that was restored, or is being moved
		return nil, ErrUnbound
	}
	return r, err
}

// Bound looks for a marker at path, without a database: ErrMissing, ErrUnbound, or that it can't be understood.
func Bound(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrMissing
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory", path)
	}
	if _, err = readMarker(path); errors.Is(err, fs.ErrNotExist) {
		return ErrUnbound
	}
	return err
}

// binder is one Bind, Join or Accept.
type binder struct {
	path string
	pool *pgxpool.Pool
	cfg  Config
	lock *lock

	verified bool
}

func newBinder(path string, pool *pgxpool.Pool, cfg Config, flag int) (*binder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	l, err := openLock(path, flag)
	if err != nil {
		return nil, err
	}
	if cfg.Wait == 0 {
		cfg.Wait = 5 * time.Second
	}
	if cfg.idle == 0 {
		cfg.idle = 30 * time.Second // several syncs of a busy disk
	}
	return &binder{path: path, pool: pool, cfg: cfg, lock: l}, nil
}

// open takes turns until one of them has root.lock shared and the root its next generation.
func open(ctx context.Context, path string, pool *pgxpool.Pool, cfg Config, flag int, turn func(*binder, context.Context) (marker, error)) (*Root, error) {
	b, err := newBinder(path, pool, cfg, flag)
	if err != nil {
		return nil, err
	}
	var m marker
	err = b.patiently(ctx, func() error {
		m, err = turn(b, ctx)
		return err
	}, ErrInUse, ErrBusy)
	if err != nil {
		return nil, errors.Join(err, b.lock.close())
	}
	b.lock.enter()
	return &Root{path: b.path, marker: m, lock: b.lock, closed: sync.OnceValue(b.lock.close)}, nil
}

// patiently repeats fn while others are in its way, for as long as is to be waited.
func (b *binder) patiently(ctx context.Context, fn func() error, others ...error) error {
	deadline := time.NewTimer(b.cfg.Wait)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := fn()
		if !slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) }) {
			return named(err, b.path)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return named(err, b.path)
		case <-tick.C:
		}
	}
}

func (b *binder) bind(ctx context.Context) (marker, error) {
	if _, err := readMarker(b.path); errors.Is(err, fs.ErrNotExist) {
		if err := b.create(ctx); err != nil {
			return marker{}, err
		}
	}
	m, err := b.start(ctx, false)
	if errors.Is(err, ErrUnbound) { // the marker went while we came
		err = ErrBusy
	}
	return m, err
}

func (b *binder) join(ctx context.Context) (marker, error) {
	m, err := b.start(ctx, true)
	if !errors.Is(err, ErrInUse) {
		return m, err
	}
	// A creator holds the lock too, and is to be waited for. Its marker has no row yet.
	p, seen := b.observe(ctx)
	if seen != nil {
		return marker{}, seen
	}
	if p.created() {
		return marker{}, p.unfinished()
	}
	return marker{}, err
}

// start takes the lock shared and, where nothing speaks against it, gives the root its next generation. It lets go of the
// lock when it fails.
func (b *binder) start(ctx context.Context, joining bool) (marker, error) {
	if err := b.lock.try(unix.LOCK_SH); err != nil {
		return marker{}, err
	}
	m, err := b.started(ctx, joining)
	if err != nil {
		return marker{}, errors.Join(err, b.lock.unlock())
	}
	return m, nil
}

func (b *binder) started(ctx context.Context, joining bool) (marker, error) {
	b.at("locked")
	if err := b.verify(ctx); err != nil {
		return marker{}, err
	}
	// A look without the key first: a refusal leaves no trace.
	p, err := b.observe(ctx)
	if err != nil {
		return marker{}, err
	}
	if err := p.admit(b.cfg.Testing, joining); err != nil {
		return marker{}, err
	}
	if joining && p.created() {
		return marker{}, ErrUnbound
	}
	if _, err := p.settled(); err != nil {
		return marker{}, err
	}
	if err := b.original(ctx, p); err != nil {
		return marker{}, err
	}
	return b.bump(ctx, p.marker.RootID, pair.settled)
}

// create writes the marker of a new root, which has no row until its first bump.
func (b *binder) create(ctx context.Context) (err error) {
	if err := b.lock.try(unix.LOCK_EX); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.lock.unlock()) }()
	b.at("create locked")
	// Whoever held the lock before us may have created it.
	if _, err := readMarker(b.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unused(b.path); err != nil {
		return err
	}
	if err := b.verify(ctx); err != nil {
		return err
	}
	inst, err := b.begin(ctx)
	if err != nil {
		return err
	}
	b.at("create begun")
	if err := createMarker(b.path, marker{InstanceID: inst.ID, RootID: uuid.New(), Testing: inst.Testing}); err != nil {
		return err
	}
	b.at("create marked")
	return nil
}

// unused refuses a root that has lost its marker: with a new id nobody would find what its runs left here.
func unused(path string) error {
	for _, dir := range []string{layout.Runs, layout.Workspaces} {
		entries, err := os.ReadDir(filepath.Join(path, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(entries) > 0 {
			return &LostError{Path: markerFile(path), Entry: filepath.Join(dir, entries[0].Name())}
		}
	}
	return nil
}

// verify lets the caller look at the schema, once: turns follow each other in milliseconds.
func (b *binder) verify(ctx context.Context) error {
	if b.verified || b.cfg.Verify == nil {
		return nil
	}
	err := b.cfg.Verify(ctx)
	b.verified = err == nil
	return err
}

// at tells a test how far it is.
func (b *binder) at(step string) {
	if b.cfg.at != nil {
		b.cfg.at(step)
	}
}
