package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ValueError says that a variable's value can't be used.
type ValueError struct {
	Variable string
	Value    string // empty for a secret
	Allowed  string
}

// Error implements error.
func (e *ValueError) Error() string {
	return fmt.Sprintf("%s=%q can't be used: %s", e.Variable, e.Value, e.Allowed)
}

// allowedError carries what is allowed from a Decode method to whoever knows the variable's name.
type allowedError string

func (e allowedError) Error() string { return string(e) }

// Seconds is a duration given as a decimal number of seconds.
type Seconds time.Duration //nolint:recvcheck // Decode has to change it

// Decode implements envconfig.Decoder.
func (s *Seconds) Decode(value string) error {
	const allowed = allowedError("it takes a number of seconds without a unit, such as 5 or 0.5")
	const limit = 1e9 // 31 years; far from overflowing a time.Duration
	if value == "" {
		return nil
	}
	if !regexp.MustCompile(`^-?[0-9]{1,10}(\.[0-9]{1,9})?$`).MatchString(value) {
		return allowed
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || math.Abs(seconds) > limit {
		return allowed
	}
	*s = Seconds(math.Round(seconds * float64(time.Second)))
	return nil
}

// Duration is s for everybody else.
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

// String is the number of seconds, as a variable holds it.
func (s Seconds) String() string {
	return strconv.FormatFloat(time.Duration(s).Seconds(), 'f', -1, 64)
}

// Flag is true or false.
type Flag bool

// Decode implements envconfig.Decoder.
func (f *Flag) Decode(value string) error {
	switch strings.ToLower(value) {
	case "":
	case "true", "1", "yes", "on":
		*f = true
	case "false", "0", "no", "off":
		*f = false
	default:
		return allowedError("it takes true or false")
	}
	return nil
}

// Count is a whole number.
type Count int

// Decode implements envconfig.Decoder.
func (c *Count) Decode(value string) error {
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return allowedError("it takes a whole number")
	}
	*c = Count(n)
	return nil
}

// Megabytes is a size given as a whole number of megabytes of 1024 × 1024 bytes.
type Megabytes int64 //nolint:recvcheck // Decode has to change it

// Decode implements envconfig.Decoder.
func (m *Megabytes) Decode(value string) error {
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return allowedError("it takes a whole number of megabytes without a unit, such as 1024")
	}
	*m = Megabytes(n)
	return nil
}

// Bytes is the size for everybody else.
func (m Megabytes) Bytes() int64 { return int64(m) << 20 }

// String is the number of megabytes, as a variable holds it.
func (m Megabytes) String() string { return strconv.FormatInt(int64(m), 10) }

// List holds words that were separated by commas.
type List []string

// Decode implements envconfig.Decoder.
func (l *List) Decode(value string) error {
	*l = nil
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*l = append(*l, word)
		}
	}
	return nil
}

const redacted = "[secret]"

// Secret is a value that no printing, logging or encoding shows. Only Reveal does.
type Secret struct{ value string } //nolint:recvcheck // Decode has to change it

// NewSecret makes a secret of value.
func NewSecret(value string) Secret { return Secret{value: value} }

// Decode implements envconfig.Decoder.
func (s *Secret) Decode(value string) error {
	s.value = value
	return nil
}

// Reveal answers the value, for the one place that needs it.
func (s Secret) Reveal() string { return s.value }

// Empty says that there is none.
func (s Secret) Empty() bool { return s.value == "" }

// String implements fmt.Stringer; it is empty for an empty secret, so that a log tells given from not given.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return redacted
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// Format implements fmt.Formatter: verbs that go past String and GoString, such as %d or %x, show nothing either.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// allowedOf finds what a Decode method said is allowed.
func allowedOf(err error) string {
	if allowed, ok := errors.AsType[allowedError](err); ok {
		return string(allowed)
	}
	return "it can't be read"
}

// NameRule says in words what ValidName takes.
const NameRule = "a name begins with a-z or 0-9 and goes on with those, '.', '_' and '-'"

// ValidName says whether a repository may be called that; agents and pipelines follow the same rule.
func ValidName(name string) bool {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`).MatchString(name)
}
