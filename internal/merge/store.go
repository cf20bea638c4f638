package merge

import "orch/internal/merge/lease"

// Store owns the table merge_attempts.
type Store struct{ leases *lease.Store }

// NewStore returns a store of attempts that wait in the line of leases, on the same database.
func NewStore(leases *lease.Store) *Store { return &Store{leases: leases} }
