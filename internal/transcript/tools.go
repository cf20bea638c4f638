package transcript

import (
	"hash/maphash"
	"slices"
)

const maxOpenTools = 64

// tools are the tools in flight, as hashes of their ids: an id may have any length.
type tools struct {
	seed maphash.Seed
	ids  []uint64
}

func (t *tools) has(id string) bool {
	return len(t.ids) > 0 && slices.Contains(t.ids, maphash.String(t.seed, id))
}

// add opens a tool, unless it is open or there are too many.
func (t *tools) add(id string) {
	if t.ids == nil {
		t.seed = maphash.MakeSeed()
	}
	if hash := maphash.String(t.seed, id); len(t.ids) < maxOpenTools && !slices.Contains(t.ids, hash) {
		t.ids = append(t.ids, hash)
	}
}

func (t *tools) remove(id string) {
	if len(t.ids) == 0 {
		return
	}
	if at := slices.Index(t.ids, maphash.String(t.seed, id)); at >= 0 {
		t.ids = slices.Delete(t.ids, at, at+1)
	}
}

func (t *tools) count() int { return len(t.ids) }
