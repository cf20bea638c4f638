// Package redact replaces secrets by their names in a stream of bytes.
//
// It works by value: whoever prints a secret, and for whatever reason, the value must not come to rest on a disk. A
// value is found however it is cut into writes, and in these forms:
//
//	as it is                  without white space around it
//	line by line              each line of at least 8 bytes of a value with more than one line
//	inside a JSON string      as JavaScript, Go and Python write it, and inside JSON inside JSON
//	in base64                 of both alphabets, at any place in what was encoded, also broken into lines
//	in a URL                  as any of the usual functions escapes it, with large and small hexadecimal digits
//
// Every occurrence of every form is covered whole, also where two overlap; what touches is named once. A value of fewer
// than 6 bytes isn't a secret: it would be found everywhere. Of base64 a few characters can stay at the ends of a value
// and at a line break; they hold less than a value of its own.
//
// The longest end of the output that may be the beginning of a secret is kept back until more is written or the writer
// is closed, never for a time: a secret that comes in two writes an hour apart is found too.
package redact
