package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/cli/exit"
	"orch/internal/cli/session"
)

func TestBodyComesFromWhereItWasSaidToBe(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", most)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, file, in, want string
		refused              bool
	}{
		{text: "as it is", in: "unread", want: "as it is"},
		{file: "-", in: "from there", want: "from there"},
		{file: file, want: strings.Repeat("x", most)},
		{file: "-", in: strings.Repeat("x", most+1), refused: true},
		{file: file + "-gone", refused: true},
	} {
		s := &session.Session{In: strings.NewReader(c.in)}
		got, err := s.Body(c.text, c.file)
		var coded *exit.Error
		if got != c.want || c.refused != (errors.As(err, &coded) && coded.Code == exit.Usage) || !c.refused && err != nil {
			t.Errorf("%q %q: %d bytes, %v", c.text, c.file, len(got), err)
		}
	}
}
