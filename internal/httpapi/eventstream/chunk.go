package eventstream

import "unicode/utf8"

// MaxChunk bounds the bytes of one Chunk.
const MaxChunk = 32 << 10

// Chunk is a piece of a log: Offset is that of its first byte, End the one after its last.
type Chunk struct {
	Offset, End int64
	Text        string
}

// Chunker cuts a log into pieces of text. It never cuts a character in two: the beginning of one at the end of a part
// waits for the rest, and isn't counted as sent until then.
type Chunker struct {
	Next    int64 // offset after all that was given out
	pending []byte
}

// Add takes the next part of the log, which begins at offset, and returns what can be sent.
func (c *Chunker) Add(offset int64, part []byte) []Chunk {
	var chunks []Chunk
	if offset != c.Next+int64(len(c.pending)) { // bytes in between are gone
		chunks = c.Rest()
		c.Next = offset
	}
	data := append(c.pending, part...) //nolint:gocritic // pending is replaced below
	c.pending = nil
	for len(data) > 0 {
		size := whole(data[:min(len(data), MaxChunk)])
		if size == 0 {
			break
		}
		chunks = append(chunks, c.give(data[:size]))
		data = data[size:]
	}
	c.pending = append(c.pending, data...)
	return chunks
}

// Rest returns what was held back.
func (c *Chunker) Rest() []Chunk {
	if len(c.pending) == 0 {
		return nil
	}
	given := c.give(c.pending)
	c.pending = nil
	return []Chunk{given}
}

func (c *Chunker) give(data []byte) Chunk {
	given := Chunk{Offset: c.Next, End: c.Next + int64(len(data)), Text: string(data)}
	c.Next = given.End
	return given
}

// whole is the length of data without the beginning of a character at its end.
func whole(data []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		if start := len(data) - back; utf8.RuneStart(data[start]) {
			if !utf8.FullRune(data[start:]) {
				return start
			}
			break
		}
	}
	return len(data)
}
