package redact

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// Secret is a value that must not be seen, and the name that takes its place.
type Secret struct{ Name, Value string }

// Set knows the forms of some secrets. It isn't changed by use.
type Set struct {
	// sorted are the pieces to look for, in the order of their bytes, none twice.
	sorted []piece
	// pairs has a bit for each two bytes that a piece begins with: nearly all of a text is passed over by it.
	pairs []uint64
	// first is where in sorted the pieces begin that begin with a byte.
	first [256 + 1]int
}

type piece struct{ text, mark string }

// NewSet prepares to look for secrets. Those whose value is too short are left out.
func NewSet(secrets []Secret) *Set {
	s := &Set{}
	for _, secret := range secrets {
		mark := "[" + strings.Map(tame, cmp.Or(secret.Name, "secret")) + "]"
		for _, text := range forms(secret.Value) {
			s.sorted = append(s.sorted, piece{text: text, mark: mark})
		}
	}
	if len(s.sorted) == 0 {
		return s
	}
	slices.SortStableFunc(s.sorted, func(a, b piece) int { return strings.Compare(a.text, b.text) })
	s.sorted = slices.Clip(slices.CompactFunc(s.sorted, func(a, b piece) bool { return a.text == b.text }))
	s.pairs = make([]uint64, 1<<16/64)
	for _, p := range s.sorted {
		pair := pairOf(p.text[0], p.text[1])
		s.pairs[pair/64] |= 1 << (pair % 64)
		s.first[int(p.text[0])+1]++
	}
	for c := range 256 {
		s.first[c+1] += s.first[c]
	}
	return s
}

// tame keeps a name from meaning something to those who read the log as JSON or on a terminal.
func tame(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("_-.:/", r) {
		return r
	}
	return '_'
}

func pairOf(a, b byte) int { return int(a)<<8 | int(b) }

// Writer replaces the secrets in what is written to it. It is for one goroutine.
func (s *Set) Writer(to io.Writer) *Writer { return &Writer{set: s, to: to} }

// String replaces the secrets in a text.
func (s *Set) String(text string) string {
	var out strings.Builder
	w := s.Writer(&out)
	_, _ = w.Write([]byte(text)) // a Builder takes everything
	_ = w.Close()
	return out.String()
}

// may reports whether a piece can begin with the first bytes of b.
func (s *Set) may(b []byte) bool {
	if len(b) < 2 {
		return s.first[b[0]] < s.first[int(b[0])+1]
	}
	pair := pairOf(b[0], b[1])
	return s.pairs[pair/64]&(1<<(pair%64)) != 0
}

// match finds the longest piece that b begins with. More reports whether with more bytes it could be a longer one.
func (s *Set) match(b []byte) (mark string, length int, more bool) {
	left := s.sorted[s.first[b[0]]:s.first[int(b[0])+1]]
	for at := 1; len(left) > 0; at++ {
		if len(left[0].text) == at { // the shortest comes first
			mark, length = left[0].mark, at
			left = left[1:]
		}
		if at == len(b) {
			return mark, length, len(left) > 0
		}
		left = narrow(left, at, b[at])
	}
	return mark, length, false
}

// narrow keeps the pieces that have the byte c at a place. All are longer, and have the same bytes before.
func narrow(left []piece, at int, c byte) []piece {
	if len(left) == 0 {
		return nil
	}
	if len(left) == 1 {
		if left[0].text[at] != c {
			return nil
		}
		return left
	}
	from, _ := slices.BinarySearchFunc(left, c, func(p piece, c byte) int { return cmp.Compare(p.text[at], c) })
	left = left[from:]
	end, _ := slices.BinarySearchFunc(left, c, func(p piece, c byte) int {
		if p.text[at] == c {
			return -1
		}
		return 1
	})
	return left[:end]
}
