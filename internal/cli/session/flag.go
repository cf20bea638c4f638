package session

import (
	"io"
	"os"

	"orch/internal/cli/exit"
)

// Given is what a flag says; nil when it was left out.
func Given[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// Body gives a task's text from where it was said to be: as it is, in a file, or on standard input.
func (s *Session) Body(text, file string) (string, error) {
	const limit = 1 << 20
	if file == "" {
		return text, nil
	}
	from := s.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", exit.Usagef("read the task's text: %w", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return "", exit.Usagef("read the task's text: %w", err)
	}
	if len(content) > limit {
		return "", exit.Usagef("the task's text in %s is longer than 1 MiB", file)
	}
	return string(content), nil
}
