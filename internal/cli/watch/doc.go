// Package watch follows a task to its end and tells what happens to it, each thing once and in order: as lines for a
// person, as JSON for a program, or not at all.
package watch
