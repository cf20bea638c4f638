package runlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	firstSegment  = "log"
	segmentPrefix = "log."
	// mostOffset is beyond all output: a segment can begin there, and sums with the size of a file don't overflow.
	mostOffset = 1 << 60
)

// segment is one file of a log; start is the offset of its first byte.
type segment struct {
	path  string
	start int64
}

// segments lists the files of a log, oldest first.
func segments(dir string) ([]segment, error) {
	// Not sorted by name: offsets have no leading zeros.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list log: %w", err)
	}
	var found []segment
	for _, entry := range entries {
		start, ok := segmentStart(entry.Name())
		if !ok || !entry.Type().IsRegular() { // what else has such a name isn't orch's
			continue
		}
		at := len(found)
		for at > 0 && found[at-1].start > start {
			at--
		}
		found = append(found, segment{})
		copy(found[at+1:], found[at:])
		found[at] = segment{path: filepath.Join(dir, entry.Name()), start: start}
	}
	return found, nil
}

func segmentStart(name string) (int64, bool) {
	if name == firstSegment {
		return 0, true
	}
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	start, err := strconv.ParseInt(digits, 10, 64)
	return start, err == nil && start > 0 && start <= mostOffset
}

// SegmentPath is the file of a run directory that holds the output from the offset start on, up to the next one's.
func SegmentPath(dir string, start int64) string {
	if start == 0 {
		return filepath.Join(dir, firstSegment)
	}
	return filepath.Join(dir, segmentPrefix+strconv.FormatInt(start, 10))
}
