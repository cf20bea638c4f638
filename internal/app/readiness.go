package app

import (
	"context"
	"errors"

	"orch/api"
	"orch/internal/app/database"
	"orch/internal/db"
	"orch/internal/httpapi"
	"orch/internal/lifespan"
)

// readiness is httpapi.Readiness.
type readiness struct {
	*server
	system *system
}

// Check implements httpapi.Readiness.
func (r *readiness) Check(ctx context.Context) []api.Check {
	checks := append(r.checkDatabase(ctx), r.checkListener())
	for _, s := range r.life.Snapshot() {
		if s.Name == serviceListener || s.Name == serviceHTTP || s.Name == serviceSystem || s.Name == serviceAgents {
			continue
		}
		checks = append(checks, checkOf(s))
	}
	return checks
}

// checkDatabase looks at the schema too, once the database answers.
func (r *readiness) checkDatabase(ctx context.Context) []api.Check {
	if err := r.system.pool.Ping(ctx); err != nil {
		return []api.Check{failed("database", db.Code(err))}
	}
	schema := api.Check{Name: "schema", Status: httpapi.CheckOK}
	if err := database.Verify(ctx, r.system.pool); err != nil {
		schema = failed("schema", schemaCode(err))
	}
	return []api.Check{{Name: "database", Status: httpapi.CheckOK}, schema}
}

func schemaCode(err error) string {
	if errors.Is(err, database.ErrMigrating) {
		return "newer_migration_running"
	}
	return db.Code(err)
}

// checkListener: without the listener everything works, at the pace of the poll, so it is no reason to be unready.
func (r *readiness) checkListener() api.Check {
	check := api.Check{Name: "listener", Status: httpapi.CheckOK}
	if l := r.listener.Load(); l == nil || !l.Connected() {
		code := "not_connected"
		check.Status, check.Code = httpapi.CheckOff, &code
	}
	return check
}

func checkOf(s lifespan.Status) api.Check {
	switch s.State {
	case lifespan.StateReady:
		return api.Check{Name: s.Name, Status: httpapi.CheckOK}
	case lifespan.StateDisabled:
		return api.Check{Name: s.Name, Status: httpapi.CheckOff}
	case lifespan.StateStale: // what it may have ended with before, and came back from, doesn't tell why
		return failed(s.Name, string(s.State))
	case lifespan.StateStarting, lifespan.StateBackoff, lifespan.StateStopped:
	}
	if s.LastError != "" {
		return failed(s.Name, s.LastError)
	}
	return failed(s.Name, string(s.State))
}

func failed(name, code string) api.Check {
	return api.Check{Name: name, Status: httpapi.CheckFailed, Code: &code}
}

// status is what the supervisor says of a service; one that it doesn't know is off.
func (s *server) status(name string) lifespan.Status {
	for _, service := range s.life.Snapshot() {
		if service.Name == name {
			return service
		}
	}
	return lifespan.Status{Name: name, State: lifespan.StateDisabled}
}
