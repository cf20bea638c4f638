package foreign

import (
	"encoding/json"
	"time"
)

const (
	maxWait = 60 * 24 * time.Hour
	// lastSecond is the end of what a date in JSON can say.
	lastSecond = 253402300799
)

// Moment is a time as RFC 3339 or in seconds since 1970; zero for anything else.
type Moment struct{ time.Time }

// UnmarshalJSON never fails: a program that can't tell the time is heard all the same.
func (m *Moment) UnmarshalJSON(raw []byte) error {
	var n float64
	if json.Unmarshal(raw, &n) == nil {
		m.Time = Epoch(n)
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			m.Time = Epoch(float64(at.Unix()))
		}
	}
	return nil
}

// Epoch takes seconds or milliseconds since 1970; zero for what is no date.
func Epoch(n float64) time.Time {
	if n > lastSecond {
		n /= 1000
	}
	if !(n > 0 && n <= lastSecond) {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC()
}

// Seconds takes a duration; none for what makes no sense.
func Seconds(n float64) time.Duration {
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n, maxWait.Seconds()) * float64(time.Second))
}
