package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/app/database"
	"orch/internal/app/start"
	"orch/internal/cli/exit"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/root"
)

type rootCommand struct {
	Status rootStatusCommand `cmd:"" default:"1" help:"Show whether data root and database belong together, and who works there (the default)."`
	Bind   rootBindCommand   `cmd:"" help:"Make a data root for the database of ORCH_DATABASE_URL, on a host that is to run only \"orch worker\"."`
	Accept rootAcceptCommand `cmd:"" help:"Make a data root and a database fit again, one of which was restored on purpose."`
}

type rootStatusCommand struct{}

// Run shows what data root and database say about each other, and changes nothing. It fails when they don't fit.
func (c *rootStatusCommand) Run(s *local) error {
	var st root.Status
	look := func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		st, err = s.inspectRoot(ctx, pool)
		return err
	}
	var err error
	if root.Bound(s.cfg.Data.Root) != nil { // the verdict says it; no database is asked, or started, for that
		err = look(s.Context, nil)
	} else {
		err = database.WithPool(s.Context, s.cfg, s.quietLogger(), look)
	}
	if st.Path == "" {
		return err
	}
	if s.JSON {
		if err := s.PrintJSON(st); err != nil {
			return err
		}
	} else {
		s.printRoot(st)
	}
	switch {
	case err != nil:
		return fmt.Errorf("ask the database: %s", db.Code(err))
	case !st.Fits:
		return exit.Silently(exit.Failed)
	}
	return nil
}

func (s *local) inspectRoot(ctx context.Context, pool *pgxpool.Pool) (root.Status, error) {
	self, err := process.Self()
	if err != nil {
		return root.Status{}, err
	}
	return root.Inspect(ctx, s.cfg.Data.Root, pool, root.Config{Testing: bool(s.cfg.Data.Testing), Host: self.Host})
}

func (s *local) printRoot(st root.Status) {
	s.Print("data root  %s", st.Path)
	if m := st.Marker; m != nil {
		s.Print("marker     generation %d, root %s, of the database %s%s", m.Generation, m.RootID, m.InstanceID, forTests(m.Testing))
	}
	if d := st.Database; d != nil {
		known := "doesn't know the root"
		if st.Row != nil {
			known = fmt.Sprintf("generation %d", st.Row.Generation)
		}
		s.Print("database   %s, %s, set-up %s%s", known, d.InstanceID, d.Setup, forTests(d.Testing))
	}
	if len(st.Holders) > 0 {
		holders := make([]string, len(st.Holders))
		for i, h := range st.Holders {
			holders[i] = h.String()
		}
		s.Print("in use by  %s", strings.Join(holders, ", "))
	}
	s.Print("verdict    %s", st.Verdict)
}

func forTests(marked bool) string {
	if marked {
		return ", for tests"
	}
	return ""
}

type rootBindCommand struct{}

var errOwnDatabase = errors.New("ORCH_DATABASE_URL is empty, and a private PostgreSQL is for its own data root only: " +
	"set the URL of the database that the servers use, or start `orch serve`, which binds its data root itself")

// Run does for a host of workers what `orch serve` does at its start.
func (c *rootBindCommand) Run(s *local) error {
	if s.cfg.Database.Private() {
		return errOwnDatabase
	}
	if root.Bound(s.cfg.Data.Root) == nil {
		done, err := s.boundBefore()
		if err != nil {
			return err
		}
		if done {
			return s.bound("was bound before", nil)
		}
	}
	pool, data, err := start.Open(s.Context, start.Config{Config: s.cfg, MaxConns: 2, Logger: s.quietLogger(), FailUnready: true})
	if db.Unreachable(err) {
		return fmt.Errorf("ask the database: %s", db.Code(err))
	}
	if err != nil {
		return err
	}
	defer pool.Close()
	return s.bound("is bound, `orch worker` can start on it", data)
}

// boundBefore says whether a root with a marker is really bound: a start that was interrupted is to be finished. A root that
// doesn't fit the database is an error.
func (s *local) boundBefore() (bool, error) {
	var st root.Status
	err := database.WithPool(s.Context, s.cfg, s.quietLogger(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		if st, err = s.inspectRoot(ctx, pool); err == nil {
			return nil
		}
		if unready := database.Verify(ctx, pool); unready != nil { // it says more of a database without tables
			return unready
		}
		return err
	})
	switch {
	case db.Unreachable(err):
		return false, fmt.Errorf("ask the database: %s", db.Code(err))
	case err != nil:
		return false, err
	case !st.Fits:
		return false, fmt.Errorf("bind the data root %s: %s", st.Path, st.Verdict)
	}
	return st.Ready(), nil
}

func (s *local) bound(how string, data *root.Root) error {
	if s.JSON {
		shown := map[string]any{"root": s.cfg.Data.Root, "new": data != nil}
		if data != nil {
			shown["root_id"], shown["instance_id"] = data.ID(), data.InstanceID()
		}
		if err := s.PrintJSON(shown); err != nil {
			return err
		}
	} else {
		s.Print("the data root %s %s", s.cfg.Data.Root, how)
	}
	if data == nil {
		return nil
	}
	return data.Close()
}

type rootAcceptCommand struct {
	Rebind bool `help:"Also when the data root belongs to another database: it gets a new id in this one. Tasks and jobs of the other database stay there."`
}

// Run makes data root and database fit. Nobody may work in the data root meanwhile.
func (c *rootAcceptCommand) Run(s *local) error {
	if err := root.Bound(s.cfg.Data.Root); err != nil {
		return fmt.Errorf("accept the data root %s: %w", s.cfg.Data.Root, err)
	}
	self, err := process.Self()
	if err != nil {
		return err
	}
	var done root.Accepted
	err = database.WithPool(s.Context, s.cfg, s.quietLogger(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		if err := database.Verify(ctx, pool); err != nil {
			return err
		}
		done, err = root.Accept(ctx, s.cfg.Data.Root, pool, root.Config{
			Testing: bool(s.cfg.Data.Testing), Host: self.Host, Rebind: c.Rebind,
		})
		return err
	})
	if db.Unreachable(err) {
		return fmt.Errorf("ask the database: %s", db.Code(err))
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(done)
	}
	s.printRoot(done.Found)
	switch {
	case !done.Changed:
		s.Print("nothing to do: they fit")
	case done.Rebound:
		s.Print("accepted: the data root belongs to this database now, as %s with generation %d", done.RootID, done.Generation)
	default:
		s.Print("accepted: both have generation %d now, and no other copy of them fits any more", done.Generation)
	}
	return nil
}
