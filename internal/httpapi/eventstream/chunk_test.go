package eventstream

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// However a log is cut into parts, its chunks say the same text, meet without gap, and no character is cut in two.
func TestChunksJoinToTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.SliceOf(rapid.Byte()),
		).Draw(t, "log")
		start := rapid.Int64Range(0, 1000).Draw(t, "start")
		c := Chunker{Next: start}
		var chunks []Chunk
		for at := 0; at < len(log); {
			size := rapid.IntRange(1, len(log)-at).Draw(t, "size")
			chunks = append(chunks, c.Add(start+int64(at), log[at:at+size])...)
			at += size
		}
		chunks = append(chunks, c.Rest()...)
		var text strings.Builder
		next := start
		for i, piece := range chunks {
			if piece.Offset != next || piece.End-piece.Offset != int64(len(piece.Text)) || piece.End <= piece.Offset {
				t.Fatalf("chunk %d is %+v, after %d", i, piece, next)
			}
			if utf8.Valid(log) && !utf8.ValidString(piece.Text) {
				t.Fatalf("chunk %d cuts a character: %q", i, piece.Text)
			}
			next = piece.End
			text.WriteString(piece.Text)
		}
		if text.String() != string(log) || next != start+int64(len(log)) || c.Next != next {
			t.Fatalf("%q became %q", log, text.String())
		}
	})
}

func TestChunksAreBoundedAndSkipWhatIsGone(t *testing.T) {
	t.Parallel()
	var c Chunker
	chunks := c.Add(0, []byte(strings.Repeat("x", 3*MaxChunk)+"\xe2\x82"))
	if len(chunks) != 3 || c.Next != 3*MaxChunk || len(c.pending) != 2 {
		t.Fatalf("%d chunks, next %d, %d pending", len(chunks), c.Next, len(c.pending))
	}
	chunks = c.Add(4*MaxChunk, []byte("y"))
	if len(chunks) != 2 || chunks[0].Text != "\xe2\x82" || chunks[1] != (Chunk{Offset: 4 * MaxChunk, End: 4*MaxChunk + 1, Text: "y"}) {
		t.Errorf("after a gap: %+v", chunks)
	}
}
