// Package foreign takes texts, numbers and times that programs print: whatever they are, they come out within bounds, and as
// what JSON, a database and a terminal can show.
package foreign
