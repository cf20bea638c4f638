package db_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:hunter2@db.example.org:5433/orch?sslmode=disable",
		"postgresql://u:hunter2@db.example.org:5433/orch?sslmode=disable",
		"host=db.example.org port=5433 user=u password=hunter2 dbname=orch sslmode=disable",
	} {
		cfg, err := db.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != "db.example.org" || cfg.Port != 5433 || cfg.Database != "orch" || cfg.User != "u" || cfg.Password != "hunter2" {
			t.Errorf("%s: %s %d %s %s", url, cfg.Host, cfg.Port, cfg.Database, cfg.User)
		}
	}
}

// TestParseURLKeepsSecrets tries strings whose parts the driver quotes in its errors.
func TestParseURLKeepsSecrets(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"",
		"  ",
		"hunter2",
		"hunter2@host/db",
		"mysql://u:hunter2@host/db",
		"postgres://u:hunter2@host:port/db",
		"postgres://u:hun/ter2@host/db",
		"postgres://u:hun#ter2@host/db",
		"postgres://u:hun?ter2@host/db",
		"postgres://u:hun%ter2@host/db",
		"postgres://u:hunter2 @host/db",
		"postgres://u:hunter2\x00@host/db",
		"postgres://u:hunter2@host:99999/db",
		"postgres://u:hunter2@ho[st/db",
		"postgres://u:p@host/db?sslmode=hunter2",
		"postgres://u:p@host/db?sslmode=verify-ca&sslrootcert=/hunter2",
		"postgres://u:p@host/db?connect_timeout=hunter2",
		"postgres://u:p@host/db?target_session_attrs=hunter2",
		"postgres://u:p@host/db?service=hunter2",
		"postgres://u:p@host/db?default_query_exec_mode=hunter2",
		"postgres://u:p@host/db?statement_cache_capacity=hunter2",
		"host=h password='hunter2",
		"host=h password = hunter2 =",
		"password=hunter2 port=hunter2",
	} {
		_, err := db.ParseURL(url)
		if err == nil {
			continue // some of these mean something to the driver, and then there is no error to look at
		}
		if !errors.Is(err, db.ErrURL) {
			t.Errorf("%v isn't ErrURL", err)
		}
		if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
			t.Errorf("%v wraps the driver's error, which holds the string", err)
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			for _, part := range []string{"hunter2", "ter2", "hun/"} {
				if strings.Contains(text, part) {
					t.Errorf("the error quotes the string: %s", text)
				}
			}
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("postgres://u:hunter2@host:5432/db?sslmode=disable")
	f.Add("host=h port=1 password='x y'")
	f.Fuzz(func(t *testing.T, rest string) {
		const secret = "s3kr1t-s3kr1t"
		for _, url := range []string{"postgres://u:" + secret + rest, rest + secret, "password=" + secret + rest} {
			if _, err := db.ParseURL(url); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("quoted: %v", err)
			}
		}
	})
}
