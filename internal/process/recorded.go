package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Recorded says whether a run directory holds a record of the end, at the price of one look.
func Recorded(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, exitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a record: %w", err)
	}
	return true, nil
}
