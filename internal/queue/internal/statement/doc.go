// Package statement is how the queue, and what is beside it, speak to the server: how a statement is numbered, bounded and
// kept to the one plan that is right for it, what fills a row's struct, and which values can be stored.
package statement
