package lfs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"orch/internal/lfs"
)

func pointer(content string) lfs.Pointer {
	sum := sha256.Sum256([]byte(content))
	return lfs.Pointer{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

func text(p lfs.Pointer) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", p.OID, p.Size)
}

func TestParse(t *testing.T) {
	t.Parallel()
	p := pointer("content\n")
	if got, is := lfs.Parse([]byte(text(p))); !is || got != p {
		t.Errorf("%+v, %v", got, is)
	}
	extended := strings.Replace(text(p), "oid", "ext-0-x sha256:00\noid", 1)
	if got, is := lfs.Parse([]byte(extended)); !is || got != p {
		t.Errorf("with an extension: %+v, %v", got, is)
	}
	for _, no := range []string{
		"", "text\n", strings.Replace(text(p), "size 8", "size x", 1), strings.Replace(text(p), "size 8\n", "", 1),
		strings.Replace(text(p), "sha256:", "md5:", 1), strings.Replace(text(p), p.OID, p.OID[1:], 1),
		strings.Replace(text(p), p.OID[:2], "..", 1), text(p) + strings.Repeat("x", lfs.MaxPointer), strings.ToUpper(text(p)),
	} {
		if got, is := lfs.Parse([]byte(no)); is {
			t.Errorf("%q is %+v", no, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(text(pointer("x"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, is := lfs.Parse(b)
		if is && filepath.Dir(filepath.Dir(filepath.Dir(lfs.Store("s").Path(p)))) != "s/objects" {
			t.Errorf("%q leads to %s", b, lfs.Store("s").Path(p))
		}
		lfs.Pointers(b)
	})
}

func TestPointers(t *testing.T) {
	t.Parallel()
	p, q := pointer("one"), pointer("two")
	object := func(kind, content string) string {
		return fmt.Sprintf("%s %s %d\n%s\n", strings.Repeat("1", 40), kind, len(content), content)
	}
	batch := object("blob", text(p)) + strings.Repeat("2", 40) + " missing\n" + object("tree", text(q)) + object("blob", "x") +
		object("blob", text(p)) + object("blob", text(q))
	if got := lfs.Pointers([]byte(batch)); !slices.Equal(got, []lfs.Pointer{p, q}) {
		t.Errorf("%v", got)
	}
	if got := lfs.Pointers([]byte(batch[:60])); len(got) != 0 {
		t.Errorf("%v in what was cut short", got)
	}
}

// A store of an agent is taken at nobody's word.
func TestCarry(t *testing.T) {
	t.Parallel()
	from, to := lfs.Of(filepath.Join(t.TempDir(), "a")), lfs.Of(filepath.Join(t.TempDir(), "b"))
	if from.Exists() {
		t.Error("nothing is there yet")
	}
	good, forged, short, linked, piped, gone := pointer("good"), pointer("true"), pointer("short"), pointer("link"), pointer("pipe"), pointer("gone")
	secret := filepath.Join(t.TempDir(), "secret")
	for path, content := range map[string]string{from.Path(good): "good", from.Path(forged): "fake", from.Path(short): "sh", secret: "link"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []lfs.Pointer{linked, piped} {
		if err := os.MkdirAll(filepath.Dir(from.Path(p)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(secret, from.Path(linked)), syscall.Mkfifo(from.Path(piped), 0o600)); err != nil {
		t.Fatal(err)
	}
	if is, err := good.Matches(t.Context(), from.Path(good)); err != nil || !is {
		t.Errorf("%v, %v", is, err)
	}
	if is, err := forged.Matches(t.Context(), from.Path(forged)); err != nil || is {
		t.Errorf("a forged one: %v, %v", is, err)
	}
	all := []lfs.Pointer{good, forged, short, linked, piped, gone}
	for range 2 {
		missing, err := to.Carry(t.Context(), from, all)
		if err != nil || !slices.Equal(missing, all[1:]) {
			t.Fatalf("%v, %v", missing, err)
		}
		if got, err := os.ReadFile(to.Path(good)); err != nil || string(got) != "good" || !to.Has(good) || to.Has(forged) {
			t.Errorf("%q, %v", got, err)
		}
		if left, err := os.ReadDir(filepath.Dir(to.Path(good))); err != nil || len(left) != 1 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if _, err := lfs.Of(t.TempDir()).Carry(stopped, from, all); err == nil {
		t.Error("goes on when it was stopped")
	}
}
