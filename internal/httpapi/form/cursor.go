package form

import (
	"encoding/base64"
	"strconv"

	"github.com/google/uuid"
)

// CursorAt is the cursor with which a list goes on after the item with this id.
func CursorAt(id int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, id, 10))
}

// Cursor reads what CursorAt made; ok is false for anything else.
func Cursor(text string) (id int64, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, false
	}
	id, err = strconv.ParseInt(string(raw), 10, 64)
	return id, err == nil && id > 0
}

// CursorAtID is the same for items whose ids are UUIDs.
func CursorAtID(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// CursorID reads what CursorAtID made.
func CursorID(text string) (id uuid.UUID, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return uuid.Nil, false
	}
	id, err = uuid.FromBytes(raw)
	return id, err == nil && id != uuid.Nil
}
