// Package front is what every request passes before its handler: it gets an id, is let in or turned away, is noted in
// the log, and a panic of its handler ends with it. It knows no route but those that are open to everybody.
package front
