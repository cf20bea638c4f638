package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"
)

// node is an object of the OpenAPI document.
type node = map[string]any

// Contract is the OpenAPI document, and says which answers keep it. It knows as much of JSON Schema as the document
// uses, and fails for a keyword that it doesn't know. It is stricter than the document in one thing: an answer holds no
// field that isn't described.
type Contract struct {
	doc node
}

// LoadContract reads the document.
func LoadContract(path string) (*Contract, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load the contract: %w", err)
	}
	c := &Contract{}
	if err := yaml.Unmarshal(raw, &c.doc); err != nil {
		return nil, fmt.Errorf("load the contract: %w", err)
	}
	return c, nil
}

// Check fails the test when an answer isn't one that the document promises for the request.
func (c *Contract) Check(tb testing.TB, r *http.Response, body []byte) {
	tb.Helper()
	asked := r.Request.Method + " " + r.Request.URL.EscapedPath()
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		tb.Errorf("%s: content type %q: %v", asked, r.Header.Get("Content-Type"), err)
		return
	}
	content := c.answer(r.Request, r.StatusCode)
	media, promised := content[kind].(node)
	if !promised {
		tb.Errorf("%s: %d with %s isn't promised, but %v", asked, r.StatusCode, kind, slices.Sorted(maps.Keys(content)))
		return
	}
	if !strings.HasSuffix(kind, "json") {
		return
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		tb.Errorf("%s: %v in %s", asked, err, body)
		return
	}
	for _, wrong := range c.mismatches("", child(media, "schema"), value) {
		tb.Errorf("%s: %d: %s", asked, r.StatusCode, wrong)
	}
}

// answer is what the document says of the content of an answer. Where it has no such operation, only a problem is one.
func (c *Contract) answer(r *http.Request, status int) node {
	responses := child(c.operation(r.Method, r.URL.EscapedPath()), "responses")
	found := child(responses, strconv.Itoa(status))
	if found == nil {
		found = child(responses, "default")
	}
	if found == nil {
		found = child(c.doc, "components", "responses", "Problem")
	}
	return child(c.resolve(found), "content")
}

func (c *Contract) operation(method, path string) node {
	asked := strings.Split(path, "/")
	for template, item := range child(c.doc, "paths") {
		parts := strings.Split(template, "/")
		if slices.EqualFunc(parts, asked, func(part, text string) bool { return part == text || strings.HasPrefix(part, "{") }) {
			return child(item, strings.ToLower(method))
		}
	}
	return nil
}

// child goes down a path of keys; nil, which has no keys, where there is nothing.
func child(from any, keys ...string) node {
	found, _ := from.(node)
	for _, key := range keys {
		found, _ = found[key].(node)
	}
	return found
}

func (c *Contract) resolve(n node) node {
	for {
		ref, ok := n["$ref"].(string)
		if !ok {
			return n
		}
		n = child(c.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

// mismatches says how a value differs from its schema.
func (c *Contract) mismatches(at string, schema node, value any) (wrong []string) {
	schema = c.resolve(schema)
	for keyword := range schema {
		if !knownKeyword(keyword) {
			wrong = append(wrong, at+": this check doesn't know the keyword "+keyword)
		}
	}
	if value == nil {
		if schema["nullable"] != true {
			wrong = append(wrong, at+" is null")
		}
		return wrong
	}
	if all, ok := schema["allOf"].([]any); ok {
		for _, part := range all {
			wrong = append(wrong, c.mismatches(at, child(part), value)...)
		}
		return wrong
	}
	switch schema["type"] {
	case "object":
		return append(wrong, c.objectMismatches(at, schema, value)...)
	case "array":
		items, ok := value.([]any)
		if !ok {
			return append(wrong, at+" is no array")
		}
		for i, item := range items {
			wrong = append(wrong, c.mismatches(fmt.Sprintf("%s[%d]", at, i), child(schema, "items"), item)...)
		}
		return wrong
	}
	if !matches(schema, value) {
		wrong = append(wrong, fmt.Sprintf("%s is %v, not %v %v %v", at, value, schema["type"], schema["format"], schema["enum"]))
	}
	return wrong
}

func knownKeyword(keyword string) bool {
	switch keyword {
	case "type", "properties", "required", "items", "enum", "format", "nullable", "allOf", "additionalProperties":
		return true
	case "description", "example", "default", "minLength", "maxLength", "minimum", "maximum", "maxItems": // of requests
		return true
	}
	return strings.HasPrefix(keyword, "x-")
}

func (c *Contract) objectMismatches(at string, schema node, value any) (wrong []string) {
	object, ok := value.(node)
	if !ok {
		return []string{at + " is no object"}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, there := object[fmt.Sprint(name)]; !there {
			wrong = append(wrong, fmt.Sprintf("%s.%v is missing", at, name))
		}
	}
	others := schema["additionalProperties"]
	for name, field := range object {
		described := child(schema, "properties", name)
		if described == nil {
			described = child(others)
		}
		switch {
		case described != nil:
			wrong = append(wrong, c.mismatches(at+"."+name, described, field)...)
		case others != true:
			wrong = append(wrong, at+"."+name+" isn't described")
		}
	}
	return wrong
}

// matches says whether a value that is neither null, list nor object is what its schema says.
func matches(schema node, value any) bool {
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, value) {
		return false
	}
	switch v := value.(type) {
	case bool:
		return schema["type"] == "boolean"
	case json.Number:
		_, err := v.Int64()
		return schema["type"] == "number" || schema["type"] == "integer" && err == nil
	case string:
		var err error
		switch schema["format"] {
		case "date-time":
			_, err = time.Parse(time.RFC3339Nano, v)
		case "uuid":
			_, err = uuid.Parse(v)
		}
		return schema["type"] == "string" && err == nil
	}
	return false
}
