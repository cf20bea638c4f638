// Package preset knows how agent programs are started: with which arguments and variables, how a session is gone on
// with, and what each can be asked for. It starts nothing and looks at nothing.
//
// A prompt is never an argument: those are bounded, and everybody on the machine can read them.
package preset
