package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// minValue is the shortest value that is looked for, minLine the shortest line of one.
	minValue = 6
	minLine  = 8
	// longest is how much of a form is looked for in one piece, which bounds what a writer keeps back.
	longest = 1 << 10
	// base64Piece and base64Step cut base64 into pieces that overlap: encoders break it into lines anywhere. A piece
	// holds as much as the shortest value.
	base64Piece = minValue * 8 / 6
	base64Step  = base64Piece / 2
	// frame is what the lines around a PEM block begin with.
	frame = "-----"
)

// forms are the pieces by which a value is recognised.
func forms(value string) []string {
	value = strings.TrimSpace(value)
	if len(value) < minValue {
		return nil
	}
	var found []string
	for _, text := range append(lines(value), value) {
		for _, one := range append(jsonForms(text), urlForms(text)...) {
			found = append(found, pieces(one, longest, longest)...)
		}
	}
	for _, one := range base64Forms(unframed(value)) {
		found = append(found, pieces(one, base64Piece, base64Step)...)
	}
	return found
}

// unframed is a value without the first and last line of a PEM block, which are no secret: certificates have them too.
func unframed(value string) string {
	if _, rest, ok := strings.Cut(value, "\n"); ok && strings.HasPrefix(value, frame) {
		value = rest
	}
	if at := strings.LastIndexByte(value, '\n'); at >= 0 && strings.HasPrefix(value[at+1:], frame) {
		value = value[:at]
	}
	return value
}

// lines are those of a value that has more than one, as text or in the escaped form that keys have in JSON documents.
func lines(value string) []string {
	var found []string
	all := strings.Split(strings.ReplaceAll(value, `\n`, "\n"), "\n")
	if len(all) == 1 {
		return nil
	}
	for _, line := range all {
		line = strings.TrimSpace(line)
		if len(line) >= minLine && !strings.HasPrefix(line, frame) {
			found = append(found, line)
		}
	}
	return found
}

// pieces cuts a form into overlapping or adjoining pieces, which together cover it.
func pieces(form string, size, step int) []string {
	if len(form) <= size {
		return []string{form}
	}
	var found []string
	for at := 0; at+size < len(form); at += step {
		found = append(found, form[at:at+size])
	}
	return append(found, form[len(form)-size:])
}

// jsonForms are the value itself and what it becomes inside strings of JSON.
func jsonForms(value string) []string {
	found := []string{value}
	for _, escape := range []func(string) string{jsonPlain, jsonHTML, jsonASCII} {
		once := escape(value)
		found = append(found, once, escape(once))
	}
	return found
}

// jsonPlain escapes what must be escaped, as JavaScript does.
func jsonPlain(s string) string { return jsonString(s, false) }

// jsonHTML escapes what means something in HTML too, as Go does.
func jsonHTML(s string) string { return jsonString(s, true) }

func jsonString(s string, html bool) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(html)
	if err := enc.Encode(s); err != nil {
		return s // never: any string can be encoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(buf.String(), "\n"), `"`), `"`)
}

// jsonASCII escapes everything beyond ASCII, as Python does.
func jsonASCII(s string) string {
	var out strings.Builder
	for _, r := range jsonPlain(s) {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF)) // the halves of a surrogate pair
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// urlForms are what the functions of the usual languages make of a value in a URL. They differ in what they leave as it is.
func urlForms(value string) []string {
	const unreserved = "-_.~"
	var found []string
	for _, safe := range []string{
		unreserved,             // RFC 3986; Go for queries, but for the space
		unreserved + "!*'()",   // encodeURIComponent
		unreserved + "/",       // Python
		unreserved + "$&+:=@",  // Go for paths
		unreserved + "$&+,;=",  // Go for user and password
		unreserved + "!*'():@", // curl and others for paths
	} {
		for _, hex := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
			escaped := percent(value, safe, hex)
			found = append(found, escaped, strings.ReplaceAll(escaped, "%20", "+"))
		}
	}
	return found
}

func percent(s, safe, hex string) string {
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte(safe, c) >= 0 {
			out.WriteByte(c)
			continue
		}
		out.WriteByte('%')
		out.WriteByte(hex[c>>4])
		out.WriteByte(hex[c&0xF])
	}
	return out.String()
}

// base64Forms are what is surely there when a value was encoded together with what stood around it. Where it began, the
// first and the last character also hold bits of the neighbours, and are left out.
func base64Forms(value string) []string {
	if len(value) < minValue { // what is left of a frame around nothing
		return nil
	}
	const in, out = 8, 6 // bits
	var found []string
	for shift := range 3 {
		raw := append(make([]byte, shift), value...)
		first, end := (shift*in+out-1)/out, len(raw)*in/out
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			found = append(found, alphabet.EncodeToString(raw)[first:end])
		}
	}
	return found
}
