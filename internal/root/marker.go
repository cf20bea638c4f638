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
)

const markerName = "orch-root.json"

// marker is the content of orch-root.json.
type marker struct {
	InstanceID uuid.UUID `json:"instance_id"`
	RootID     uuid.UUID `json:"root_id"`
	Generation int64     `json:"generation"`
	Testing    bool      `json:"testing"`
}

// readMarker returns the marker of the root; fs.ErrNotExist when there is none. Unknown fields are an error: a newer program's
// marker may mean something that this one doesn't know.
func readMarker(path string) (marker, error) {
	file := filepath.Join(path, markerName)
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

// writeMarker replaces the marker; after a crash or a power cut the old or the new one is there, whole.
func writeMarker(path string, m marker) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	tmp := filepath.Join(path, markerName+".tmp")
	if err := writeSynced(tmp, append(text, '\n')); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(path, markerName)); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	return syncDir(path)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
