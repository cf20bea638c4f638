package db

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrURL is wrapped by every error of ParseURL.
var ErrURL = errors.New("unusable database URL")

// ParseURL reads a connection string (postgres://… or key=value pairs). Its errors say what is wrong but never quote
// the string, nor do they wrap an error that does.
func ParseURL(url string) (*pgx.ConnConfig, error) {
	if strings.TrimSpace(url) == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrURL)
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrURL, urlProblem(url, err))
	}
	return cfg, nil
}

// urlProblem describes err in constant words only: parts of the string that look harmless (a port, say) are parts of
// the password when that holds an unescaped delimiter.
func urlProblem(url string, err error) string {
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") && !strings.Contains(url, "=") {
		return "it must look like postgres://user:password@host:5432/database"
	}
	known := []struct{ phrase, words string }{
		{"sslmode", "sslmode must be disable, allow, prefer, require, verify-ca or verify-full"},
		{"TLS", "its TLS settings (sslmode, sslrootcert, sslcert, sslkey) can't be used; check the files they name"},
		{"connect_timeout", "connect_timeout must be a whole number of seconds"},
		{"target_session_attrs", "target_session_attrs has an unknown value"},
		{"service", "the service it names can't be read"},
		{"default_query_exec_mode", "default_query_exec_mode has an unknown value"},
		{"statement_cache_capacity", "statement_cache_capacity must be a number"},
		{"port", "its port must be a number from 1 to 65535 (characters such as / # ? @ : % in a password must be percent-encoded)"},
	}
	for _, k := range known {
		if strings.Contains(err.Error(), k.phrase) {
			return k.words
		}
	}
	return "it can't be parsed (characters such as / # ? @ : % in a password must be percent-encoded)"
}
