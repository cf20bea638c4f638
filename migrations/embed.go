// Package migrations holds the database schema, one up-only SQL file a step.
package migrations

import "embed"

// Files are the migrations, named NNNN_name.sql and applied in that order.
//
//go:embed *.sql
var Files embed.FS
