package local_test

import (
	"testing"

	"orch/internal/testgit"
)

// The cost of landing one commit on a checkout, its work tree following.
func BenchmarkLandAndRefresh(b *testing.B) {
	f := setup(b, testgit.New(b, map[string]string{"a": "1\n", "b": "1\n"}))
	to := f.commit(b, map[string]string{"a": "2\n", "c": "c\n"})
	b.Run("Check", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.local.Check(b.Context(), f.repo); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Land", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.local.Land(b.Context(), f.repo, f.landing(to)); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			f.target.Git("reset", "-q", "--hard", f.old)
			b.StartTimer()
		}
	})
	b.Run("Refresh", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			f.target.Git("reset", "-q", "--hard", f.old)
			f.target.Git("update-ref", "refs/heads/main", to)
			b.StartTimer()
			if err := f.local.Refresh(b.Context(), f.repo, "main", f.old, to); err != nil {
				b.Fatal(err)
			}
		}
	})
}
