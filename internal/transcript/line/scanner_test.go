package line_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/transcript/line"
)

type event struct {
	Type string            `json:"type"`
	List []item            `json:"list"`
	Each map[string]number `json:"each"`
}

type item struct {
	Type string `json:"type"`
}

type number struct {
	N int `json:"n"`
}

// taken gives output to a scanner, in pieces of at most size bytes.
func taken(want any, output string, size int) (events, plain []string) {
	s := line.New(want, func(raw []byte) { events = append(events, string(raw)) }, func(raw []byte) { plain = append(plain, string(raw)) })
	for rest := output; rest != ""; {
		n := min(len(rest), size)
		s.Take([]byte(rest[:n]))
		rest = rest[n:]
	}
	s.End()
	return events, plain
}

func TestScanner_KeepsWhatIsWanted(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		`{"type":"a","other":{"type":"b"},"list":[]}`:                                     `{"type":"a","list":[]}`,
		` { "list" : [ {"type":"x", "y":[1,2,{"z":"]"}]} , 7 ] } `:                        `{"list":[{"type":"x"},7]}`,
		`{"each":{"k":{"n":1,"m":2},"l":{"m":3}},"Type":"no"}`:                            `{"each":{"k":{"n":1},"l":{}}}`,
		`{"t\u0079pe":"escaped keys are nobody's","type\n":"nor this","type":"\u00e4\""}`: `{"type":"\u00e4\""}`,
	} {
		events, plain := taken(event{}, output, len(output))
		if !reflect.DeepEqual(events, []string{want}) || plain != nil {
			t.Errorf("%s: %q, %q", output, events, plain)
		}
	}
}

func TestScanner_TellsBrokenLinesAndWords(t *testing.T) {
	t.Parallel()
	const output = "words\n\n  \r\n{\"type\":\"a\"} {\"type\":\"b\"}\n{\"type\":\n[1]\n{\"type\":\"a\"} x\n"
	events, plain := taken(event{}, output, len(output))
	if want := []string{`{"type":"a"}`, `{"type":"b"}`, "", ""}; !reflect.DeepEqual(events, want) {
		t.Errorf("events %q", events)
	}
	if want := []string{"words", "[1]"}; !reflect.DeepEqual(plain, want) {
		t.Errorf("plain %q", plain)
	}
	if events, plain = taken(nil, `{"type":"a"}`, 99); events != nil || !reflect.DeepEqual(plain, []string{`{"type":"a"}`}) {
		t.Errorf("nothing wanted: %q, %q", events, plain)
	}
}

func TestScanner_IsTheSameForAnyCutting(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `"type"`, `"list"`, `"each"`, `"k"`, `"n"`, `:`, `,`, `1`, `true`, `null`, `"\u00e4"`, `"\\"`, `\`, `"`, ` `, "\n", "\r", "words", "\x00", "\xff",
	})
	rapid.Check(t, func(rt *rapid.T) {
		output := strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(rt, "output"), "")
		events, plain := taken(event{}, output, len(output)+1)
		cut, cutPlain := taken(event{}, output, rapid.IntRange(1, 9).Draw(rt, "size"))
		if !reflect.DeepEqual(cut, events) || !reflect.DeepEqual(cutPlain, plain) {
			rt.Fatalf("whole %q, %q\nin pieces %q, %q", events, plain, cut, cutPlain)
		}
	})
}

func TestScanner_KeepsBothEndsOfALongString(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1 << 10, 8 << 10, 24 << 10, 100 << 10, 1 << 20} {
		text := "first" + strings.Repeat("x", size) + "last"
		events, _ := taken(event{}, `{"type":"`+text+`"}`, 1000)
		if len(events) != 1 || len(events[0]) > 64<<10 {
			t.Fatalf("%d bytes: %d events", size, len(events))
		}
		kept := events[0]
		whole := kept == `{"type":"`+text+`"}`
		if !whole && size < 24<<10 || whole == strings.Contains(kept, "…") || !strings.HasPrefix(kept, `{"type":"firstx`) || !strings.HasSuffix(kept, `xlast"}`) {
			t.Errorf("%d bytes: %d kept, %.20q", size, len(kept), kept)
		}
	}
}

func TestBoundedKeepsBothEnds(t *testing.T) {
	t.Parallel()
	if got := line.Bounded("short"); got != "short" {
		t.Errorf("%q", got)
	}
	got := line.Bounded("first" + strings.Repeat("x", 1<<20) + "last")
	if len(got) > 64<<10 || !strings.HasPrefix(got, "first") || !strings.HasSuffix(got, "last") {
		t.Errorf("%d bytes, %.10q", len(got), got)
	}
}
