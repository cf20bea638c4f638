package redact

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	token = `sk-ant/A+b"c\d e<&>é🙂=_~9fT`
	pem   = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nshort\n-----END PRIVATE KEY-----\n"
)

// cut writes a text in pieces of the given lengths, over and over, and closes.
func cut(t interface{ Fatal(args ...any) }, set *Set, text string, lengths ...int) string {
	var out bytes.Buffer
	w := set.Writer(&out)
	for i := 0; len(text) > 0; i++ {
		n := min(max(lengths[i%len(lengths)], 0), len(text))
		if n == 0 && i > 0 {
			n = 1
		}
		if wrote, err := w.Write([]byte(text[:n])); wrote != n || err != nil {
			t.Fatal(wrote, err)
		}
		text = text[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSecretIsReplacedByItsName(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"API_KEY", token}, {"", "nameless"}, {"odd \"\n", "odd name"}, {"SHORT", "12345"}, {"FILE", "\n from a file \n"}})
	for in, want := range map[string]string{
		"key=" + token + ".":        "key=[API_KEY].",
		token + token:               "[API_KEY]",
		token + " " + token:         "[API_KEY] [API_KEY]",
		"a nameless one":            "a [secret] one",
		"odd name":                  "[odd___]",
		"12345":                     "12345",
		"-from a file-":             "-[FILE]-",
		token[:len(token)-1]:        token[:len(token)-1],
		token[:5] + token:           token[:5] + "[API_KEY]",
		token[:len(token)-1] + "xy": token[:len(token)-1] + "xy",
		"":                          "",
	} {
		if got := set.String(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestOutputWithoutSecretsIsUntouched(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("abcde"))).Draw(t, "text")
		set := NewSet([]Secret{{"KEY", "abcdeX"}, {"OTHER", "eeeeeeeY"}}) // all beginnings of them are there
		if got := cut(t, set, text, rapid.SliceOfN(rapid.IntRange(0, 9), 1, 5).Draw(t, "cuts")...); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
	all := make([]byte, 1<<16)
	rnd := rand.NewChaCha8([32]byte{})
	_, _ = rnd.Read(all)
	for _, secrets := range [][]Secret{nil, {{"KEY", token}}} {
		if got := NewSet(secrets).String(string(all)); got != string(all) {
			t.Error("random bytes were changed")
		}
	}
}

func TestNoSecretSurvivesAnySplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Two letters: values that contain each other, overlap and repeat themselves are common.
		values := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab\n%")), minValue, 30, -1), 1, 4).Draw(t, "values")
		var secrets []Secret
		for i, value := range values {
			secrets = append(secrets, Secret{Name: strconv.Itoa(i), Value: value})
		}
		parts := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(values), rapid.StringOfN(rapid.RuneFrom([]rune("ab%x")), 0, 5, -1))).Draw(t, "parts")
		text := strings.Join(parts, "")
		set := NewSet(secrets)
		got := cut(t, set, text, rapid.SliceOfN(rapid.IntRange(0, 40), 1, 6).Draw(t, "cuts")...)
		if whole := set.String(text); got != whole {
			t.Fatalf("in pieces %q, whole %q", got, whole)
		}
		for _, p := range set.sorted {
			if strings.Contains(got, p.text) {
				t.Fatalf("%q holds %q", got, p.text)
			}
		}
		if want := covered(set, text); got != want {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
}

// covered says slowly what is to come out: each byte that is in some piece is covered, and all others stay.
func covered(set *Set, text string) string {
	marks := make([]string, len(text))
	for at := range text {
		longest := piece{}
		for _, p := range set.sorted {
			if strings.HasPrefix(text[at:], p.text) && len(p.text) > len(longest.text) {
				longest = p
			}
		}
		for i := at; i < at+len(longest.text); i++ {
			if marks[i] == "" {
				marks[i] = longest.mark
			}
		}
	}
	var out strings.Builder
	last := ""
	for i, mark := range marks {
		if mark == "" {
			out.WriteByte(text[i])
		} else if mark != last {
			out.WriteString(mark)
		}
		last = mark
	}
	return out.String()
}

func TestOverlappingSecrets(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"A", "abcdef123"}, {"B", "f123456789"}, {"C", "abcdef"}, {"SAME", "abcdef123"}})
	for in, want := range map[string]string{
		"-abcdef123456789-": "-[A][B]-",
		"-abcdef12-":        "-[C]12-",
		"-abcdef123-":       "-[A]-",
	} {
		if got := cut(t, set, in, 1); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNothingIsKeptBackThatIsNoBeginning(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := New([]Secret{{"KEY", "abcdefgh"}}, &out)
	for _, step := range []struct{ write, seen string }{
		{"hello\n", "hello\n"}, {"x-abcdefg", "hello\nx-"}, {"X", "hello\nx-abcdefgX"}, {"abcdefgh", "hello\nx-abcdefgX[KEY]"}, {"abc", "hello\nx-abcdefgX[KEY]"},
	} {
		if _, err := w.Write([]byte(step.write)); err != nil || out.String() != step.seen {
			t.Fatalf("after %q: %q, %v", step.write, out.String(), err)
		}
	}
	if err := w.Close(); err != nil || out.String() != "hello\nx-abcdefgX[KEY]abc" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

// wantHidden checks that no four characters of what was hidden are left but at its ends.
func wantHidden(t *testing.T, set *Set, what, hidden string) {
	t.Helper()
	for _, lengths := range [][]int{{1 << 20}, {1}, {7, 3}} {
		if got := cut(t, set, "before "+hidden+" after", lengths...); strings.Count(got, "[KEY]") != 1 || len(got) > len("before [KEY] after")+4 {
			t.Errorf("%s: %q became %q", what, hidden, got)
		}
	}
}

func TestLongSecretIsFoundInPieces(t *testing.T) {
	t.Parallel()
	long := make([]byte, 10*longest+7)
	for i := range long {
		long[i] = byte('!' + rand.IntN(90))
	}
	set := NewSet([]Secret{{"KEY", string(long)}})
	if got := cut(t, set, "<"+string(long)+">", 1000, 1, 4096); got != "<[KEY]>" {
		t.Errorf("%d bytes are left", len(got))
	}
	w := set.Writer(io.Discard)
	for range 100 {
		if _, err := w.Write(long[:len(long)-1]); err != nil || len(w.held) > longest {
			t.Fatalf("%d bytes kept, %v", len(w.held), err)
		}
	}
}

var errFull = errors.New("full")

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	n := min(f.room, len(p))
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestErrorsOfTheWriterBelow(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]Secret{nil, {{"KEY", token}}} {
		w := New(secrets, &full{room: 3})
		if _, err := w.Write([]byte("12")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("3456")); !errors.Is(err, errFull) {
			t.Fatal(err)
		}
	}
	w := New([]Secret{{"KEY", token}}, &full{})
	if _, err := w.Write([]byte(token[:4])); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("secret-value", "text with secret-value in it", 3)
	f.Add("a\nb\nlonger line", `a\nb\nlonger line`, 1)
	f.Fuzz(func(t *testing.T, value, text string, n int) {
		if len(value)+len(text) > 1<<9 { // covered is slow
			return
		}
		set := NewSet([]Secret{{"K", value}})
		got := cut(t, set, text, n)
		if got != set.String(text) {
			t.Fatalf("in pieces %q, whole %q", got, set.String(text))
		}
		if want := covered(set, text); got != want {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
}

// flood is what an agent says: JSON of text, code and the odd base64.
func flood() []byte {
	var out bytes.Buffer
	for i := 0; out.Len() < 1<<20; i++ {
		fmt.Fprintf(&out, `{"type":"assistant","message":{"content":[{"type":"text","text":"line %d of func main() {\n\tfmt.Println(%d)\n}"}]}}`+"\n", i, i*7919)
		if i%20 == 0 {
			out.WriteString(base64.StdEncoding.EncodeToString(out.Bytes()[:min(out.Len(), 1000)]))
		}
	}
	return out.Bytes()
}

func BenchmarkFlood(b *testing.B) {
	text := flood()
	secrets := []Secret{{"ANTHROPIC_API_KEY", "sk-ant-api03-" + strings.Repeat("Ab9_", 22)}, {"GITEA_TOKEN", "0123456789abcdef0123456789abcdef01234567"}, {"DB", "p4ssw0rd!with&specials"}, {"KEY", pem}}
	for name, secrets := range map[string][]Secret{"none": nil, "four": secrets} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			w := New(secrets, io.Discard)
			for b.Loop() {
				for at := 0; at < len(text); at += 32 << 10 {
					if _, err := w.Write(text[at:min(at+32<<10, len(text))]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
