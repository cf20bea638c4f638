package line

import (
	"reflect"
	"strings"
)

// shape says which values of an event are looked at. A shape stands for a value and, if that is an array, for its elements.
type shape struct {
	fields map[string]*shape
	// each is the shape of every field of an object whose keys are data.
	each *shape
}

// of is the shape of a field; nil when nobody looks at it.
func (s *shape) of(key []byte) *shape {
	if found := s.fields[string(key)]; found != nil {
		return found
	}
	return s.each
}

// object reports whether anything within an object is looked at.
func (s *shape) object() bool { return len(s.fields) > 0 || s.each != nil }

// shapeOf finds the shape in the structure that an event is decoded into.
func shapeOf(v any) *shape {
	if v == nil {
		return nil
	}
	return shapeOfType(reflect.TypeOf(v))
}

func shapeOfType(t reflect.Type) *shape {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return shapeOfType(t.Elem())
	case reflect.Map:
		return &shape{each: shapeOfType(t.Elem())}
	case reflect.Struct:
		fields := make(map[string]*shape, t.NumField())
		for field := range t.Fields() {
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key != "" && key != "-" {
				fields[key] = shapeOfType(field.Type)
			}
		}
		return &shape{fields: fields}
	default:
		return &shape{}
	}
}
