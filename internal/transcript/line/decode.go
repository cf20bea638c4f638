package line

import (
	"encoding/json"
	"errors"
)

// Decode is false when raw isn't JSON. A field of an unexpected type is left out, as are unexpected fields.
func Decode(raw []byte, into any) bool {
	err := json.Unmarshal(raw, into)
	var mismatch *json.UnmarshalTypeError
	return err == nil || errors.As(err, &mismatch)
}
