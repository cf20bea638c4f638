package root

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"orch/internal/testdb"
)

// Each difference that no interrupted start leaves is one that a copy or a restored backup makes.
func TestStart_RefusesCopiesAndRestoredBackups(t *testing.T) {
	t.Parallel()
	n := uuid.New()
	for _, tt := range []struct {
		name   string
		marker func(*marker)
		row    string // what is set
		words  string
	}{
		{"marker behind", func(*marker) {}, "generation = 3", "the data root seems to be a copy"},
		{"marker behind by a start of another copy", func(m *marker) { m.Next = n }, "generation = 2, nonce = gen_random_uuid()", "the data root seems to be a copy"},
		{"marker behind by two, the first its own", func(m *marker) { m.Next = n }, "generation = 3, nonce = '" + n.String() + "'", "the data root seems to be a copy"},
		{"marker ahead by one", func(m *marker) { m.Generation = 2 }, "generation = 1", "the database seems to be restored"},
		{"marker ahead by one and unconfirmed", func(m *marker) { m.Generation, m.Nonce, m.Next = 2, n, uuid.New() }, "generation = 1", "the database seems to be restored"},
		{"marker far ahead", func(m *marker) { m.Generation = 7 }, "generation = 1", "the database seems to be restored"},
		{"both went on by one", func(m *marker) { m.Nonce = n }, "generation = 1", "different starts"},
		{"generation 0 against a row", func(m *marker) { m.Generation, m.Nonce = 0, uuid.Nil }, "generation = 1", "the data root seems to be a copy"},
		{"unknown", func(*marker) {}, "id = gen_random_uuid()", "unknown to the database"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			bind(t, path, pool, Config{})
			mark(t, path, tt.marker)
			exec(t, pool, "update roots set "+tt.row)
			before := untouched(t, path, pool)
			refuse[*PairingError](t, path, pool, Config{}, tt.words, "orch root accept", markerFile(path))
			_, err := Join(t.Context(), path, pool, Config{})
			if _, ok := errors.AsType[*PairingError](err); !ok || Reason(err) != "" {
				t.Errorf("joined: %v", err)
			}
			if after := untouched(t, path, pool); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

func TestStart_OfTwoCopiesOnlyTheOneThatStartsFirstGoesOn(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"living", "copy"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			living := bind(t, path, pool, Config{})
			other := copied(t, path)
			winner, loser := path, other
			if first == "copy" {
				winner, loser = other, path
			}
			if r := mustJoin(t, winner, pool, Config{}); r.Generation() != 2 || r.ID() != living.ID() {
				t.Fatalf("generation %d", r.Generation())
			}
			refuse[*PairingError](t, loser, pool, Config{}, "generation 1", "the database 2", "copy")
			fits(t, winner, pool, 2)
		})
	}
}

// Copies of every moment of a start: whichever side goes on first, the other one is refused.
func TestStart_CopiesMadeWhileOneStarts(t *testing.T) {
	t.Parallel()
	for _, step := range startSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			if err := bind(t, path, pool, Config{}).Close(); err != nil {
				t.Fatal(err)
			}
			var other string
			mustJoin(t, path, pool, Config{at: func(at string) {
				if at == step {
					other = copied(t, path)
				}
			}})
			mustJoin(t, path, pool, Config{})
			refuse[*PairingError](t, other, pool, Config{}, "copy")
			fits(t, path, pool, 3)
		})
	}
}
