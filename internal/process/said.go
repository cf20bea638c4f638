package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"orch/internal/process/durable"
	"orch/internal/transcript"
)

// Said is what the program of the run has said up to now, as its shim understood it: zero when it has said nothing, when
// the run's spec names no format, or when the shim didn't come to it. While the run is alive it is up to a second old.
func (r *Run) Said() (transcript.Said, error) {
	var said transcript.Said
	_, err := durable.ReadJSON(r.dir, saidFile, &said)
	return said, err
}

// NoteSaid makes known what the program has said up to now. A power cut may take it back.
func (h *Hold) NoteSaid(said transcript.Said) error {
	raw, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("encode %s: %w", saidFile, err)
	}
	tmp := filepath.Join(h.dir, saidFile+".tmp")
	_ = os.Remove(tmp) // nobody else writes it; whatever is there all the same, isn't opened
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", saidFile, err)
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, filepath.Join(h.dir, saidFile))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", saidFile, err)
	}
	return nil
}

// WriteSaid makes known what the program has said at all.
func (h *Hold) WriteSaid(said transcript.Said) error { return h.write(saidFile, said) }
