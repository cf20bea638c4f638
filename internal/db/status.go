package db

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotMigrated says that the database holds no schema of orch at all.
var ErrNotMigrated = errors.New("the database has no schema yet: run `orch migrate`, or start with ORCH_AUTO_MIGRATE=true")

// AppliedRow is one row of schema_migrations.
type AppliedRow struct {
	Version   int
	Name      string
	SHA256    string
	AppliedAt time.Time
}

// Drift is a migration whose row differs from its file. Applied is nil when a later migration was applied but this
// one wasn't.
type Drift struct {
	File    Migration
	Applied *AppliedRow
}

// SchemaStatus compares the migrations of this program with those the database has seen.
type SchemaStatus struct {
	Applied []AppliedRow
	Pending []Migration  // known here, not applied there
	Ahead   []AppliedRow // applied there, not known here
	Drifted []Drift
}

// Err is nil when the schema is exactly what this program expects. Else it is, the gravest first, a *DriftError, an
// *AheadError, ErrNotMigrated or a *PendingError.
func (s SchemaStatus) Err() error {
	switch {
	case len(s.Drifted) > 0:
		return &DriftError{Drifted: s.Drifted}
	case len(s.Ahead) > 0:
		return &AheadError{Ahead: s.Ahead}
	case len(s.Applied) == 0:
		return ErrNotMigrated
	case len(s.Pending) > 0:
		return &PendingError{Pending: s.Pending}
	}
	return nil
}

// PendingError says that the database is older than the program.
type PendingError struct{ Pending []Migration }

// Error implements error.
func (e *PendingError) Error() string {
	names := make([]string, len(e.Pending))
	for i, m := range e.Pending {
		names[i] = m.Name
	}
	return fmt.Sprintf("the database lacks %s: run `orch migrate`, or start with ORCH_AUTO_MIGRATE=true", strings.Join(names, ", "))
}

// AheadError says that the database is newer than the program.
type AheadError struct{ Ahead []AppliedRow }

// Error implements error.
func (e *AheadError) Error() string {
	names := make([]string, len(e.Ahead))
	for i, row := range e.Ahead {
		names[i] = row.Name
	}
	return fmt.Sprintf("the database was migrated by a newer orch (%s, unknown here): start that version or a later one; "+
		"to go back, restore a backup from before the upgrade", strings.Join(names, ", "))
}

// DriftError says that an applied migration isn't the one this program has.
type DriftError struct{ Drifted []Drift }

// Error implements error.
func (e *DriftError) Error() string {
	parts := make([]string, len(e.Drifted))
	for i, d := range e.Drifted {
		if d.Applied == nil {
			parts[i] = d.File.Name + " was left out although a later one was applied"
			continue
		}
		parts[i] = fmt.Sprintf("%s was applied as %s with sha256 %s, here it has %s",
			d.File.Name, d.Applied.Name, short(d.Applied.SHA256), short(d.File.SHA256))
	}
	return fmt.Sprintf("the database's history isn't this program's (%s): start the orch that migrated this database, or point "+
		"ORCH_DATABASE_URL at the right one; never edit a migration that was applied", strings.Join(parts, "; "))
}

func short(sum string) string {
	const digits = 12
	return sum[:min(digits, len(sum))]
}
