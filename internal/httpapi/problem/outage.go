package problem

import "sync"

// Codes of Config.ErrorCode that mean that the same request may well work later. They are answered as they are, with 503.
const (
	CodeUnavailable     = "database_unreachable"
	CodeDatabaseTimeout = "database_timeout"
	CodeReadOnly        = "database_read_only"
)

// awayDetail says to a client in what way the database is away; empty: code doesn't mean that it is.
func awayDetail(code string) string {
	switch code {
	case CodeUnavailable:
		return "the database can't be reached; try again"
	case CodeDatabaseTimeout:
		return "the database took too long; try again"
	case CodeReadOnly:
		return "the database accepts no writes for now; try again"
	}
	return ""
}

// outage remembers what the log has been told about the database: an outage is a line or two, not one for each request.
type outage struct {
	mu   sync.Mutex
	code string
}

// becomes is true when code, empty for none, is news.
func (o *outage) becomes(code string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.code == code {
		return false
	}
	o.code = code
	return true
}
