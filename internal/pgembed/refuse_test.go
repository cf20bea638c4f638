package pgembed

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// content lists all that a directory holds, with sizes, to prove that nothing was touched.
func content(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%p %s %u %m %T@\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestStart_RefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(data string) error
		words []string
	}{
		{
			"other major", func(data string) error { return os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("13\n"), 0o600) },
			[]string{"PostgreSQL 13", "pg_dumpall", "ORCH_POSTGRES_BIN"},
		},
		{
			"newer major", func(data string) error { return os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("19\n"), 0o600) },
			[]string{"PostgreSQL 19"},
		},
		{
			"garbled version", func(data string) error { return os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("x"), 0o600) },
			[]string{"PG_VERSION", "backup"},
		},
		{
			"no version", func(data string) error { return os.Remove(filepath.Join(data, "PG_VERSION")) },
			[]string{"isn't empty", "backup"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := oldDir(t)
			data := filepath.Join(dir, "data")
			if err := tt.spoil(data); err != nil {
				t.Fatal(err)
			}
			before := content(t, data)
			_ = refused(t, Config{Dir: dir, Unsafe: true}, append(tt.words, dir)...)
			if after := content(t, data); after != before {
				t.Errorf("changed:\n%s\n%s", before, after)
			}
		})
	}
}

func TestStart_EmptyDataDirectory(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
}

func TestStart_SocketDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	run := filepath.Join(dir, "run")
	if err := errors.Join(os.RemoveAll(run), os.Symlink("/tmp", run)); err != nil {
		t.Fatal(err)
	}
	_ = refused(t, Config{Dir: dir, Unsafe: true}, run, "in the way")
}

func TestFind(t *testing.T) {
	t.Parallel()
	in, err := Find(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Find(t.Context(), in.BinDir, in.Major); err != nil || again != in {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := Find(t.Context(), in.BinDir, in.Major+1); !errors.Is(err, ErrNoPrograms) {
		t.Error(err)
	}
	if _, err := Find(t.Context(), t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "ORCH_POSTGRES_BIN") {
		t.Error(err)
	}
}

func TestFind_Nothing(t *testing.T) {
	t.Parallel()
	nowhere := func(context.Context, bool) []string { return []string{"/nonexistent", t.TempDir()} }
	_, err := find(context.Background(), "", 0, nowhere)
	if !errors.Is(err, ErrNoPrograms) {
		t.Fatal(err)
	}
	for _, word := range []string{"PostgreSQL 14 to 18", "install", "ORCH_POSTGRES_BIN", "ORCH_DATABASE_URL"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q isn't in %q", word, err)
		}
	}
}

// fake makes programs that claim to be of that version, and count how often they are asked.
func fake(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho asked >>" + dir + "/asked\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind_Chooses(t *testing.T) {
	t.Parallel()
	tooOld, old, best, tooNew := fake(t, "9.6.24"), fake(t, "14.3"), fake(t, "18beta1"), fake(t, "19devel")
	links := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.Symlink(filepath.Join(best, name), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	clientOnly := fake(t, "17.0")
	if err := os.Remove(filepath.Join(clientOnly, "initdb")); err != nil {
		t.Fatal(err)
	}
	dears := 0
	places := func(_ context.Context, dear bool) []string {
		if dear {
			dears++
			return nil
		}
		return []string{tooOld, links, old, best, tooNew, clientOnly}
	}
	in, err := find(context.Background(), "", 0, places)
	if err != nil || in.BinDir != best || in.Major != 18 {
		t.Errorf("%+v, %v", in, err)
	}
	if dears != 0 {
		t.Errorf("the dear places were asked %d times", dears)
	}
	if asked, err := os.ReadFile(filepath.Join(best, "asked")); err != nil || string(asked) != "asked\n" {
		t.Errorf("not asked once: %q, %v", asked, err)
	}
	if in, err := find(context.Background(), "", 14, places); err != nil || in.BinDir != old {
		t.Errorf("%+v, %v", in, err)
	}
	_, err = find(context.Background(), "", 16, places)
	missing, ok := errors.AsType[*NoProgramsError](err)
	if !ok || !slices.Equal(missing.Found, []int{9, 18, 14, 19}) || !strings.Contains(err.Error(), "PostgreSQL 16") {
		t.Errorf("%v", err)
	}
}

func TestInstallHint(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"ID=debian\n": "`apt-get install postgresql`",
		"NAME=x\nID=linuxmint\nID_LIKE=\"ubuntu debian\"": "apt-get",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"":    "dnf",
		"ID=alpine": "apk add postgresql17",
		"ID=plan9":  "pacman",
		"":          "brew",
	} {
		if got := installHint(distribution(release), 0); !strings.Contains(got, want) {
			t.Errorf("%q: %s", release, got)
		}
	}
	if got := installHint("debian", 16); !strings.Contains(got, "postgresql-16") {
		t.Error(got)
	}
}

func TestConnConfig_OwesNothingToTheEnvironment(t *testing.T) { //nolint:paralleltest // it sets the environment
	for name, value := range map[string]string{
		"PGHOST": "example.org", "PGPORT": "1", "PGUSER": "x", "PGPASSWORD": "secret", "PGDATABASE": "x", "PGAPPNAME": "x",
		"PGSSLMODE": "verify-full", "PGOPTIONS": "-c x=y", "PGTZ": "Mars", "PGTARGETSESSIONATTRS": "read-only",
	} {
		t.Setenv(name, value)
	}
	cfg, err := connConfig("/s", "d")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "/s" || cfg.Port != 5432 || cfg.User != Owner || cfg.Password != "" || cfg.Database != "d" ||
		cfg.TLSConfig != nil || len(cfg.RuntimeParams) != 0 || cfg.ValidateConnect != nil || len(cfg.Fallbacks) != 0 {
		t.Errorf("%+v", cfg)
	}
}
