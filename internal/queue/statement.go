package queue

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// statement is SQL with named parameters that is sent so often that numbering them each time would show.
type statement struct {
	sql   string
	names []string // in the order of their numbers
}

var parameter = regexp.MustCompile(`@([a-z_]+)`)

// numbered makes a statement of SQL with parameters like @name.
func numbered(sql string) statement {
	self := pgx.NamedArgs{}
	for _, found := range parameter.FindAllStringSubmatch(sql, -1) {
		self[found[1]] = found[1]
	}
	text, names, err := self.RewriteQuery(context.Background(), nil, sql, nil)
	if err != nil {
		panic(fmt.Sprintf("queue: number the parameters of %s: %v", sql, err)) // of a constant
	}
	s := statement{sql: text}
	for _, name := range names {
		s.names = append(s.names, name.(string))
	}
	return s
}

// args are the arguments by their numbers.
func (s statement) args(by pgx.NamedArgs) []any {
	args := make([]any, len(s.names))
	for i, name := range s.names {
		args[i] = by[name]
	}
	return args
}

// queue adds the statement to a batch.
func (s statement) queue(batch *pgx.Batch, by pgx.NamedArgs) *pgx.QueuedQuery {
	return batch.Queue(s.sql, s.args(by)...)
}
