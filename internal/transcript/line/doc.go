// Package line cuts foreign output into lines, and lines of JSON down to what is wanted of them.
//
// Any bytes in any cutting give the same lines, and memory is bounded whatever comes: of a JSON line only the fields that
// somebody looks at are kept, while the bytes pass, and of a long string its beginning and its end. What a Scanner makes of
// a line is JSON if the line was; whether it was is left to the decoder.
package line
