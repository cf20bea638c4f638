package statement

import (
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
)

// numbered is SQL with its named parameters (@name) numbered, and their names in that order.
type numbered struct {
	sql   string
	names []string
}

// numberings are those of statements that are sent so often that numbering them each time would show.
var numberings sync.Map //nolint:gochecknoglobals // of constants

// Number returns a statement's text and arguments as the server takes them.
func Number(sql string, by pgx.NamedArgs) (string, []any) {
	known, ok := numberings.Load(sql)
	if !ok {
		known, _ = numberings.LoadOrStore(sql, numberOf(sql))
	}
	n := known.(numbered) //nolint:errcheck,forcetypeassert // nothing else is in there
	args := make([]any, len(n.names))
	for i, name := range n.names {
		args[i] = by[name]
	}
	return n.sql, args
}

func numberOf(sql string) numbered {
	var n numbered
	n.sql = regexp.MustCompile(`@[a-z_]+`).ReplaceAllStringFunc(sql, func(found string) string {
		name := found[1:]
		at := slices.Index(n.names, name)
		if at < 0 {
			at, n.names = len(n.names), append(n.names, name)
		}
		return "$" + strconv.Itoa(at+1)
	})
	return n
}

// Add adds a statement to a batch.
func Add(batch *pgx.Batch, sql string, by pgx.NamedArgs) *pgx.QueuedQuery {
	text, args := Number(sql, by)
	return batch.Queue(text, args...)
}
