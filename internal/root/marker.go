package root

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"orch/internal/root/layout"
)

// marker is the content of orch-root.json.
type marker struct {
	InstanceID uuid.UUID `json:"instance_id"`
	RootID     uuid.UUID `json:"root_id"`
	Generation int64     `json:"generation"`
	Testing    bool      `json:"testing"`
	Nonce      uuid.UUID `json:"nonce,omitzero"` // of the bump that made the generation
	Next       uuid.UUID `json:"next,omitzero"`  // of a bump that isn't confirmed
}

// readMarker returns the marker of the root; fs.ErrNotExist when there is none. Unknown fields are an error: a newer program's
// marker may mean something that this one doesn't know.
func readMarker(path string) (marker, error) {
	file := markerFile(path)
	text, err := os.ReadFile(file)
	if err != nil {
		return marker{}, err
	}
	var m marker
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return marker{}, &MarkerError{Path: file, Err: err}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return marker{}, &MarkerError{Path: file, Err: errors.New("something follows the object")}
	}
	if m.InstanceID == uuid.Nil || m.RootID == uuid.Nil || m.Generation < 0 {
		return marker{}, &MarkerError{Path: file, Err: errors.New("an id or the generation is missing")}
	}
	return m, nil
}

// createMarker writes the first marker; after a crash or a power cut it is there whole, or not at all. The lock is held
// exclusively, so that the temporary file is nobody else's.
func createMarker(path string, m marker) error {
	tmp := markerFile(path) + ".tmp"
	if err := stageMarker(tmp, m); err != nil {
		return &WriteError{Path: markerFile(path), Err: err}
	}
	if err := placeMarker(path, tmp); err != nil {
		return &WriteError{Path: markerFile(path), Err: err}
	}
	return nil
}

// stageMarker writes a marker's text to a file from which placeMarker takes it.
func stageMarker(file string, m marker) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// placeMarker replaces the marker by a staged one, for good.
func placeMarker(path, staged string) error {
	if err := os.Rename(staged, markerFile(path)); err != nil {
		return err
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func markerFile(path string) string { return filepath.Join(path, layout.Marker) }
