// Package strictjson decodes a request's JSON so that a mistake in it is named instead of ignored.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// UnknownFieldError says that the object has a field which nothing takes.
type UnknownFieldError struct{ Field string }

// Error names the field.
func (e *UnknownFieldError) Error() string { return "there is no field " + e.Field }

// KindError says that a field holds another kind of value than it should.
type KindError struct{ Field, Allowed string }

// Error names the field and what is allowed.
func (e *KindError) Error() string { return e.Field + " " + e.Allowed }

// Decode decodes exactly one JSON object, with nothing after it, into a pointer to a struct. Other errors than this
// package's types are texts about the JSON itself, fit to be shown to whoever sent it.
func Decode(raw []byte, into any) error {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("the body must be one JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return explain(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body must be one JSON object and nothing after it")
	}
	return nil
}

func explain(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("the body is no JSON: %w, at byte %d", syntax, syntax.Offset)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the body ends in the middle of a JSON value")
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &KindError{Field: kind.Field, Allowed: "must be " + name(kind.Type.String()) + ", not " + kind.Value}
	}
	// encoding/json has no type for this one.
	if field, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		return &UnknownFieldError{Field: strings.Trim(field, `"`)}
	}
	return errors.New("the body could not be decoded")
}

// name says in JSON's words what a Go type holds.
func name(goType string) string {
	goType = strings.TrimPrefix(goType, "*")
	switch {
	case goType == "string":
		return "a string"
	case goType == "bool":
		return "true or false"
	case goType == "int" || goType == "int64":
		return "a whole number"
	case goType == "float64":
		return "a number"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	}
	return "an object"
}
