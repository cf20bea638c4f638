package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Codes that Code answers. They are shown to operators and polled by dashboards: a code keeps its meaning.
const (
	CodeUnreachable     = "database_unreachable"
	CodeReadOnly        = "database_read_only"
	CodeAuth            = "database_auth"
	CodeMissing         = "database_missing"
	CodeTimeout         = "database_timeout" // the answer didn't come within the caller's time
	CodeStatement       = "statement_timeout"
	CodeLock            = "lock_timeout"
	CodeDeadlock        = "deadlock"
	CodeSerialization   = "serialization_failure"
	CodeUnique          = "unique_violation"
	CodeForeignKey      = "foreign_key_violation"
	CodeCheck           = "check_violation"
	CodeNotNull         = "not_null_violation"
	CodeExclusion       = "exclusion_violation"
	CodeSchema          = "schema_mismatch" // a table, column or function that isn't there
	CodeDenied          = "permission_denied"
	CodeNoResource      = "database_out_of_resources"
	CodeNotifyFull      = "notify_queue_full" // a COMMIT that notifies is refused
	CodeNotHeard        = "notifications_not_heard"
	CodeStartup         = "startup_parameter_refused" // by a pooler
	CodePrepared        = "prepared_statement_lost"   // by a pooler
	CodeBadData         = "bad_data"
	CodeNoRows          = "no_rows"
	CodeNotMigrated     = "not_migrated"
	CodePending         = "pending_migration"
	CodeAhead           = "schema_ahead"
	CodeDrift           = "schema_drift"
	CodeCancelled       = "cancelled"
	CodeInternal        = "internal"
	sqlStateClassLength = 2
)

// Code names what went wrong in one stable word without any text of the server; "" for nil.
func Code(err error) string {
	if err == nil {
		return ""
	}
	if code := schemaCode(err); code != "" {
		return code
	}
	if code := ownCode(err); code != "" {
		return code
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverCode(pg)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return CodeCancelled
	case networkFailure(err):
		return CodeUnreachable
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err):
		return CodeTimeout
	case errors.Is(err, pgx.ErrNoRows):
		return CodeNoRows
	}
	return CodeInternal
}

// Unreachable says that the database couldn't be asked, so that the same statement may well work later.
func Unreachable(err error) bool {
	switch Code(err) {
	case CodeUnreachable, CodeReadOnly, CodeTimeout, CodeNoResource, CodeNotifyFull:
		return true
	}
	return false
}

// ViolatedConstraint names the constraint that a statement violated; "" when err isn't about one.
func ViolatedConstraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "23") {
		return pg.ConstraintName
	}
	return ""
}

// networkFailure tells a lost or refused connection from a server's answer and from a caller's own deadline.
func networkFailure(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return !op.Timeout() || op.Op == "dial"
	}
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

func ownCode(err error) string {
	switch {
	case errors.Is(err, ErrReadOnly):
		return CodeReadOnly
	case errors.Is(err, errNotifyFull):
		return CodeNotifyFull
	case errors.Is(err, errNotHeard):
		return CodeNotHeard
	case errors.Is(err, errNoEcho), errors.Is(err, errConnectTimeout), errors.Is(err, errNoPong):
		return CodeUnreachable
	}
	return ""
}

// serverCode looks past the SQLSTATE where one stands for several things: the place in the server's source says which,
// in every language. PgBouncer has no such place, but speaks English only.
func serverCode(err *pgconn.PgError) string {
	switch {
	case err.Code == "54000" && err.Routine == "PreCommit_Notify":
		return CodeNotifyFull
	case err.Code == "08P01" && strings.HasPrefix(err.Message, "unsupported startup parameter"):
		return CodeStartup
	}
	return stateCode(err.Code)
}

func stateCode(state string) string {
	codes := map[string]string{
		"25006": CodeReadOnly,
		"3D000": CodeMissing,
		"57014": CodeStatement,
		"55P03": CodeLock,
		"40P01": CodeDeadlock,
		"40001": CodeSerialization,
		"23505": CodeUnique,
		"23503": CodeForeignKey,
		"23514": CodeCheck,
		"23502": CodeNotNull,
		"23P01": CodeExclusion,
		"42501": CodeDenied,
		"42P01": CodeSchema,
		"42703": CodeSchema,
		"42883": CodeSchema,
		"42704": CodeSchema,
		"42P05": CodePrepared,
		"26000": CodePrepared,
		"57P01": CodeUnreachable, // terminated by an administrator, crash of a sibling, starting up or stopping
		"57P02": CodeUnreachable,
		"57P03": CodeUnreachable,
		"57P05": CodeUnreachable,
		"25P03": CodeUnreachable,
	}
	if code, ok := codes[state]; ok {
		return code
	}
	if len(state) < sqlStateClassLength {
		return CodeInternal
	}
	switch state[:sqlStateClassLength] {
	case "08":
		return CodeUnreachable
	case "28":
		return CodeAuth
	case "53":
		return CodeNoResource
	case "22":
		return CodeBadData
	}
	return CodeInternal
}

func schemaCode(err error) string {
	if errors.Is(err, ErrNotMigrated) {
		return CodeNotMigrated
	}
	if _, ok := errors.AsType[*PendingError](err); ok {
		return CodePending
	}
	if _, ok := errors.AsType[*AheadError](err); ok {
		return CodeAhead
	}
	if _, ok := errors.AsType[*DriftError](err); ok {
		return CodeDrift
	}
	return ""
}
