package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/git/gitcmd"
	"orch/internal/root"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

func TestRepositoryOfAnother(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	program, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := testgit.New(t, map[string]string{"a": "1\n"})
	repo := orchyaml.Repo{Name: "r", Path: r.Dir, Base: "main"}
	if got := examineRepo(t.Context(), program, repo); got.Status != OK {
		t.Errorf("root's own: %+v", got)
	}
	if err := os.Chown(filepath.Join(r.Dir, ".git"), 4000000, 4000000); err != nil {
		t.Fatal(err)
	}
	got := examineRepo(t.Context(), program, repo)
	if got.Status != Failed || !strings.Contains(got.Detail, "/.git belongs to user 4000000") || got.Remedy != "run orch as user 4000000" {
		t.Errorf("%s: %+v", forge.CodeForeign, got)
	}
}

func TestPairing(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	path := filepath.Join(t.TempDir(), "root")
	cfg := &config.Config{
		Data:     config.Data{Root: path, File: filepath.Join(path, "orch.yaml")},
		Database: config.Database{URL: config.NewSecret(testdb.URL(testdb.ConnConfig(pool)))},
	}
	expect := func(status, words string) {
		t.Helper()
		for _, got := range Examine(t.Context(), cfg) {
			if got.Name != "pairing" {
				continue
			}
			if got.Status != status || !strings.Contains(got.Detail, words) || (status == Failed) != (got.Remedy != "") {
				t.Errorf("%+v, want %s and %q", got, status, words)
			}
			return
		}
		t.Error("nothing is said of the pairing")
	}
	expect(OK, "isn't bound to a database yet")
	bound, err := root.Bind(t.Context(), path, pool, root.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bound.Close(); err != nil {
		t.Fatal(err)
	}
	expect(OK, "bound")
	cfg.Data.Testing = true
	expect(Failed, "isn't marked for testing")
	cfg.Data.Testing = false
	if _, err := pool.Exec(t.Context(), "update roots set generation = 7"); err != nil {
		t.Fatal(err)
	}
	expect(Failed, "the data root seems to be a copy")
}

func TestDatabaseThatRefuses(t *testing.T) {
	t.Parallel()
	server := testdb.Empty(t)
	server.User = "stranger"
	const closed = "127.0.0.1:1"
	for name, test := range map[string]struct {
		url    string
		detail []string
	}{
		"user":    {testdb.URL(server) + "&password=hunter2", []string{"database_auth: host " + server.Host + ", port ", "user stranger, database " + server.Database + ": ", `"stranger"`}},
		"nobody":  {"postgres://u:hunter2@" + closed + "/d?sslmode=disable", []string{"database_unreachable: host 127.0.0.1, port 1, user u, database d"}},
		"slash":   {"postgres://u:1/hunter2@" + closed + "/d?sslmode=disable&connect_timeout=5&host=127.0.0.1", []string{"percent-encoded"}},
		"another": {"postgres://u:x@1/hunter2@" + closed + "/d?sslmode=disable&connect_timeout=5&host=127.0.0.1", []string{"percent-encoded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := &config.Config{Database: config.Database{URL: config.NewSecret(test.url)}}
			got := examineDatabase(t.Context(), cfg)
			if got.Status != Failed || strings.Contains(got.Detail, "hunter") || strings.Contains(got.Detail, "port 1,") && name != "nobody" {
				t.Errorf("%+v", got)
			}
			for _, want := range test.detail {
				if !strings.Contains(got.Detail, want) {
					t.Errorf("%q isn't in %+v", want, got)
				}
			}
		})
	}
}
