package remote

import (
	"encoding/json"

	"github.com/google/uuid"

	"orch/internal/cli/session"
	"orch/internal/client"
)

// logJSON is what a run wrote, or a piece of it. Offsets count the bytes that the run wrote; bytes that are no UTF-8 are
// replaced in the text.
type logJSON struct {
	RunID  uuid.UUID `json:"run_id"`
	Offset int64     `json:"offset"` // of the first byte: more than 0 means that what was before is gone
	Text   string    `json:"text"`
	End    int64     `json:"end"` // after the last byte
}

// printJSON prints the log as one object.
func (c *jobLogCommand) printJSON(s *session.Session, server *client.Client, id uuid.UUID) error {
	log := logJSON{RunID: id}
	var text []byte
	err := readLog(s.Context, server, id, func(part client.Log) error {
		if part.Offset != log.End { // the log outgrew its cap meanwhile
			log.Offset, text = part.Offset, nil
		}
		text = append(text, part.Text...)
		log.End = part.Next
		return nil
	})
	if err != nil {
		return err
	}
	log.Text = string(text)
	return s.PrintJSON(log)
}

// followJSON prints each piece of the log as an object on a line of its own, and the end of the run as the last one.
func (c *jobLogCommand) followJSON(s *session.Session, server *client.Client, id uuid.UUID) error {
	lines := json.NewEncoder(s.Out)
	end, err := server.FollowLog(s.Context, id, 0, func(chunk client.Chunk) error {
		return lines.Encode(logJSON{RunID: id, Offset: chunk.Offset, Text: chunk.Text, End: chunk.End})
	})
	if err != nil {
		return err
	}
	return lines.Encode(end)
}
