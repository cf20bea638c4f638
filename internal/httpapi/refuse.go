package httpapi

import "orch/internal/httpapi/problem"

// RefusedError is an answer other than the one asked for.
type RefusedError = problem.RefusedError

// NotFound says that what was asked for, e.g. "task demo-1", doesn't exist.
func NotFound(what string) error { return problem.NotFound(what) }

// Conflict says that the state of things doesn't allow it, e.g. with code "landing_started".
func Conflict(code, detail string) error { return problem.Conflict(code, detail) }

// Invalid says that one field is wrong, and what is allowed.
func Invalid(field, allowed string) error { return problem.Invalid(field, allowed) }

// Refuse says with a code of its own, and status 422, why something can't be done.
func Refuse(code, detail string) error { return problem.Refuse(code, detail) }
