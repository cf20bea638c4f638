package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestMultiLineSecretLineByLineAndInJSON(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"KEY", pem}})
	wantHidden(t, set, "whole", strings.TrimSpace(pem))
	inJSON, err := json.Marshal(strings.TrimSpace(pem))
	if err != nil {
		t.Fatal(err)
	}
	wantHidden(t, set, "in JSON", strings.Trim(string(inJSON), `"`))
	for _, line := range strings.Split(pem, "\n")[1:3] {
		if got := set.String("    " + line + "\r\n"); got != "    [KEY]\r\n" {
			t.Errorf("a line became %q", got)
		}
	}
	if got := set.String("-----BEGIN PRIVATE KEY-----\nshort\n"); got != "-----BEGIN PRIVATE KEY-----\nshort\n" {
		t.Errorf("what isn't secret became %q", got)
	}
	// A document that holds the key, as cloud accounts have it, and then the key out of it.
	document, err := json.Marshal(map[string]string{"private_key": pem})
	if err != nil {
		t.Fatal(err)
	}
	got := NewSet([]Secret{{"KEY", string(document)}}).String(pem)
	for _, line := range strings.Split(pem, "\n")[1:3] {
		if strings.Contains(got, line) {
			t.Errorf("a key out of a document became %q", got)
		}
	}
}

func TestJSONInJSON(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"KEY", token}})
	for name, html := range map[string]bool{"Go": true, "JavaScript": false} {
		text := token
		for depth := range 3 {
			wantHidden(t, set, fmt.Sprintf("%s, depth %d", name, depth), text)
			text = jsonString(text, html)
		}
	}
	wantHidden(t, set, "Python", `sk-ant/A+b\"c\\d e<&>\u00e9\ud83d\ude42=_~9fT`)
	wantHidden(t, set, "Python twice", `sk-ant/A+b\\\"c\\\\d e<&>\\u00e9\\ud83d\\ude42=_~9fT`)
}

func TestReplacedJSONStaysJSON(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"K \"x\n", token}, {"PEM", pem}})
	line, err := json.Marshal(map[string]string{"text": "a " + token + " b\n" + pem})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(cut(t, set, string(line), 3)), &got); err != nil || !strings.HasPrefix(got["text"], "a [K__x_] b\n[PEM]") {
		t.Errorf("%q, %v", got["text"], err)
	}
}

func TestBase64AtEachAlignment(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"KEY", token}})
	for name, enc := range map[string]*base64.Encoding{
		"std": base64.StdEncoding, "URL": base64.URLEncoding, "raw": base64.RawStdEncoding, "raw URL": base64.RawURLEncoding,
	} {
		for before := range 7 {
			for after := range 4 {
				hidden := enc.EncodeToString([]byte(strings.Repeat("u", before) + token + strings.Repeat("v", after)))
				got := cut(t, set, hidden, 5)
				left := len(strings.Replace(got, "[KEY]", "", 1)) - (before+after)*4/3
				if strings.Count(got, "[KEY]") != 1 || left > 6 {
					t.Errorf("%s, %d before, %d after: %q", name, before, after, got)
				}
			}
		}
	}
}

func TestBase64InLines(t *testing.T) {
	t.Parallel()
	value := strings.Repeat(token, 4)
	set := NewSet([]Secret{{"KEY", value}})
	encoded := base64.StdEncoding.EncodeToString([]byte("k" + value))
	for width := 4; width < 80; width++ {
		for _, end := range []string{"\n", "\r\n", `\n`} {
			var text strings.Builder
			for at := 0; at < len(encoded); at += width {
				text.WriteString(encoded[at:min(at+width, len(encoded))] + end)
			}
			for line := range strings.SplitSeq(set.String(text.String()), end) {
				for part := range strings.SplitSeq(line, "[KEY]") {
					if len(part) > base64Piece+2 { // 2 of them are the k
						t.Errorf("width %d: %q is left", width, part)
					}
				}
			}
		}
	}
}

func TestFrameOfAKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"KEY", pem}})
	other := strings.NewReplacer("MII", "NJJ", "SC\n", "YY\n", "short", "other", "BKc", "ZZZ").Replace(pem)
	encoded := base64.StdEncoding.EncodeToString([]byte(other[:28] + "another"))
	if got := set.String(encoded + other[:28]); got != encoded+other[:28] {
		t.Errorf("%q", got)
	}
}

func TestURLForms(t *testing.T) {
	t.Parallel()
	set := NewSet([]Secret{{"KEY", token}})
	user := url.UserPassword("u", token)
	_, password, _ := strings.Cut(user.String(), ":")
	for name, hidden := range map[string]string{
		"query":              url.QueryEscape(token),
		"path":               url.PathEscape(token),
		"password":           password,
		"small digits":       strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%5C", "%5c", "%3C", "%3c", "%3E", "%3e", "%3D", "%3d", "%C3%A9", "%c3%a9", "%F0%9F", "%f0%9f").Replace(url.QueryEscape(token)),
		"encodeURIComponent": "sk-ant%2FA%2Bb%22c%5Cd%20e%3C%26%3E%C3%A9%F0%9F%99%82%3D_~9fT",
		"Python":             "sk-ant/A%2Bb%22c%5Cd%20e%3C%26%3E%C3%A9%F0%9F%99%82%3D_~9fT",
	} {
		wantHidden(t, set, name, hidden)
	}
}
